"""Reports of studies: one page as data, and its renderings. jinja2 and matplotlib are the extra ``report``."""
