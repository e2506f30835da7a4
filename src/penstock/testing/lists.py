"""Run a flow on lists."""

from __future__ import annotations

from typing import Any, Unpack

from penstock.options import On, Sequential
from penstock.run import run
from penstock.testing.flows import Rows, SourceOptions, Tested, flow_under_test, one_or_all


def run_list(tested: Tested, rows: Rows, *, on: On | None = None, **options: Unpack[SourceOptions]) -> Any:
    """Run a flow, or a stage, on rows, one row at a time or as `on` says; return the rows that come out.

    A flow reads the rows instead of what its sources say, and its sinks write nothing. A stage is a function from
    stream to stream, and `options` are those of its source (`time`, `slack`, `order_by`, `schema`). Give a dict of
    lists where there are several sources; a dict of lists is returned where there are several sinks.
    """
    return one_or_all(run(flow_under_test(tested, rows, options), on=on or Sequential()).results)
