"""The threads engine: stations with ports, workers that run them, how batches come in and go out, what steers it."""
