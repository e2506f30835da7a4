"""Find a workload by its name, for `penstock run NAME -o option=value`.

A workload is a function that makes a flow. Its parameters are keyword-only and annotated with `int`, `float`, `str`,
`bool`, literal texts or the numbers of `options.py`, and all have defaults: they are the options of the command line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from penstock.annotated import options_of
from penstock.errors import FlowError
from penstock.flow import Flow

WORKLOADS: dict[str, str] = {
    "failed-logins": "penstock.lab.workloads.failed_logins:failed_logins",
    "mobile-fraud": "penstock.lab.workloads.mobile_fraud:mobile_fraud",
    "stock-exchange": "penstock.lab.workloads.stock_exchange.flow:stock_exchange",
    **{f"tpcx-bb-{query}": f"penstock.lab.workloads.tpcx_bb.{query}:flow" for query in ("q1", "q2", "q3", "q4", "q15")},
    "synthetic-calculator": "penstock.lab.workloads.synthetic.named:calculator",
    "synthetic-chain": "penstock.lab.workloads.synthetic.named:pipeline",
    "synthetic-data-parallel": "penstock.lab.workloads.synthetic.named:data_parallel",
    "synthetic-matrix": "penstock.lab.workloads.synthetic.named:matrix",
    "synthetic-mixed": "penstock.lab.workloads.synthetic.named:mixed",
    "synthetic-pipeline": "penstock.lab.workloads.synthetic.named:pipeline",
    "synthetic-reverse-tree": "penstock.lab.workloads.synthetic.named:reverse_tree",
    "synthetic-tree": "penstock.lab.workloads.synthetic.named:tree",
    "traffic": "penstock.lab.workloads.traffic.named:traffic",
}
"""Where the function of each workload is: `module:function`."""


def make_workload(name: str, options: dict[str, str]) -> Flow:
    """Make the flow of a workload; options come as text."""
    made: Flow = find(name)(**read_options(name, options))
    return made


def read_options(name: str, options: dict[str, str]) -> dict[str, Any]:
    """Turn the options of a workload into values; refuse those that it has not, and values that cannot be."""
    known = options_of(find(name))
    values: dict[str, Any] = {}
    for option, text in options.items():
        if option not in known:
            raise FlowError(f"workload {name!r} has no option {option!r}; it has {', '.join(known) or 'none'}")
        try:
            values[option] = known[option].parse(text) if known[option].kinds else text
        except ValueError:
            raise FlowError(
                f"option {option!r} of workload {name!r} is of type {known[option].kind.__name__}, and {text!r} is not"
            ) from None
        known[option].check(values[option])
    return values


def find(name: str) -> Callable[..., Any]:
    if name not in WORKLOADS:
        raise FlowError(f"there is no workload {name!r}; there are {', '.join(sorted(WORKLOADS))}")
    module, _, function = WORKLOADS[name].partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
