"""Implementations whose kernels are timed beside ours, a file each."""
