"""The synthetic flows as workloads with names: their options are those of the functions that build them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any

from penstock import write
from penstock.flow import Flow
from penstock.lab.workloads.synthetic import calculator as calculators
from penstock.lab.workloads.synthetic import matrix as matrices
from penstock.lab.workloads.synthetic.shapes import graph

_ENDS = {"source", "sink"}
"""What a builder takes besides options: `out` stands for the sink."""


def named(
    build: Callable[..., Flow],
    about: str,
    *,
    settled: Mapping[str, Any] | None = None,
    renamed: Mapping[str, str] | None = None,
    **defaults: Any,
) -> Callable[..., Flow]:
    """Make a workload of a builder, with its options but for those that are settled, and defaults of its own.

    `renamed` has the option of each parameter that has another name there.
    """
    settled, renamed = settled or {}, renamed or {}
    parameters = {
        renamed.get(name, name): each
        for name, each in signature(build, eval_str=True).parameters.items()
        if name not in settled and name not in _ENDS
    }
    options = [
        each.replace(name=name, kind=Parameter.KEYWORD_ONLY, default=defaults.get(name, each.default))
        for name, each in parameters.items()
    ]
    options.append(Parameter("out", Parameter.KEYWORD_ONLY, default="", annotation=str))

    def workload(**given: Any) -> Flow:
        taken = Signature(options).bind(**given)
        taken.apply_defaults()
        out = taken.arguments.pop("out")
        values = {parameters[name].name: value for name, value in taken.arguments.items()}
        return build(**settled, **values, sink=write.parquet(out) if out else write.console(limit=2))

    workload.__doc__ = about
    workload.__signature__ = Signature(options, return_annotation=Flow)  # type: ignore[attr-defined]
    return workload


pipeline = named(
    graph,
    "Run busy operators one after the other (Streams, C-Stream).",
    settled={"shape": "pipeline", "width": 1},
    depth=12,
)
data_parallel = named(
    graph,
    "Run busy operators side by side, each with its part of the rows (Streams, C-Stream).",
    settled={"shape": "data-parallel", "depth": 1},
    width=12,
)
mixed = named(
    graph,
    "Run pipelines of busy operators side by side (Streams).",
    settled={"shape": "mixed"},
    width=4,
    depth=4,
)
tree = named(
    graph,
    "Run a tree of busy operators, each dealing its rows out to its branches (C-Stream).",
    settled={"shape": "tree"},
    renamed={"width": "branches"},
    branches=2,
    depth=6,
)
reverse_tree = named(
    graph,
    "Run a tree of busy operators from its leaves to its root (C-Stream).",
    settled={"shape": "reverse-tree"},
    renamed={"width": "branches"},
    branches=2,
    depth=6,
)
matrix = named(
    matrices.matrix,
    "Run matrix operators, a stateless and a partitioned one, with sizes and selectivity as parameters (Ordered).",
)
calculator = named(
    calculators.calculator,
    "Run a generator of skewed keys that change, and a calculator with state for each key (Elasticutor).",
)
