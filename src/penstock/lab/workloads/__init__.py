"""Flows that people recognise: the applications of the papers, each with its generator and its oracle."""
