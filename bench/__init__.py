"""Measure Penstock side by side with its alternatives: `python -m bench`."""
