"""How long tests wait for what must come: only so that none hangs, and never a measure of speed."""

PATIENCE = 300.0
"""Seconds."""
