"""Why two results differ: flips, grafts, groups of errors, decoded addresses, named faults."""
