"""Operators over chunks of rows, the same for every engine: how rows come in, and what becomes of them."""
