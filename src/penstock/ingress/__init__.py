"""Ingress: what the driver knows of sources, and how a piece of a source is read.

A `Feed` tells which rows are new (as splits that can be written to a log); `splits.read_split` reads one anywhere.
"""
