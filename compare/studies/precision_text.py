def render(d): return ""
