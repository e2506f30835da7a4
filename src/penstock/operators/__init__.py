"""Operators: the primitives that engines know (`base`), and the library composed of them."""
