"""Flows whose shape, cost, selectivity, keys and state are parameters: what the papers measure their mechanisms with.

`graph` builds the shapes of Streams and C-Stream out of busy operators, `matrix` the parametric operators of Ordered,
`calculator` the generator and calculator of Elasticutor. `busy` is the work, `draws` the chance: both depend on
nothing but their parameters, so every run gives the same rows.
"""

from penstock.lab.workloads.synthetic.busy import KINDS, Kernel, Kind, Work, make_work
from penstock.lab.workloads.synthetic.shapes import SHAPES, Shape, build, graph, serials

__all__ = ["KINDS", "SHAPES", "Kernel", "Kind", "Shape", "Work", "build", "graph", "make_work", "serials"]
