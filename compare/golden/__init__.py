"""Making and checking golden fixtures."""
