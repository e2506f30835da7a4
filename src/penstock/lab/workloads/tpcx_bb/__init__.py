"""TPCx-BB: the generator of the tables that five of its queries stream, and the queries as flows, one a file.

`tables` says what the tables hold and how large they are, `generator` makes their rows, `data` keeps them in a
directory; `q1`, `q2`, `q3`, `q4` and `q15` are the flows. docs/workloads/tpcx-bb.md lists every parameter.
"""
