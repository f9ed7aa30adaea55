"""Studies: what a choice costs or changes, measured and written as a dataset. One file a study."""
