"""Write the workloads as the alternatives' own documentation would.

`*_peer.py` are programs: each runs W1, W2 or W3 with one alternative, in an environment that has nothing but that
alternative and PyArrow (`make bench-peers`); `apart` is what they share. The other modules are also sides of the
benchmarks that compare inside one process.
"""
