"""Faults put into a right candidate on purpose: the checks are checked."""
