"""Figures from a GPU: timed by graph replay, checked in the same run, and recorded in a file."""
