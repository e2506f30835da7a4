"""Penstock: elastic, order-preserving stream processing for Python, on Spark.

Where things are: `flow` composes (with `read`, `write`, `stages` and `operators`), `plan` checks, `sequential` says
what a flow means, `pe` runs operators over chunks of rows, `spark` runs epochs, `state` reads what was kept, `run`
starts it all, as `options` say.
"""

from penstock import read, state, write
from penstock.checks import DeadLetter
from penstock.errors import (
    CheckpointError,
    FlowError,
    LeaseError,
    OperatorError,
    PenstockError,
    RowTypeError,
    SetupError,
    SourceError,
    StorageError,
)
from penstock.flow import Flow, KeyedStream, Stream, WindowedStream, operate
from penstock.operators import aggregates as agg
from penstock.operators import library
from penstock.operators.calls import Cache
from penstock.operators.coroutine import Operator, OperatorContext
from penstock.operators.expression_functions import expr
from penstock.operators.library import feedback
from penstock.operators.pattern import Match, absent, step
from penstock.operators.process import Process, ProcessContext
from penstock.operators.windows import Window
from penstock.options import Sequential, Spark, Threads
from penstock.rows import Record
from penstock.run import Run, run, start
from penstock.stages import (
    aggregate,
    count_window,
    distinct,
    drop,
    filter,
    flat_map,
    flat_scan,
    key_by,
    lookup,
    map,
    map_batches,
    merge,
    parallel,
    pattern,
    process,
    reduce,
    rename,
    scan,
    select,
    session,
    sink,
    sliding,
    sort,
    threaded,
    top,
    tumbling,
    union,
    window,
)
from penstock.timing import arrival

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "CheckpointError",
    "DeadLetter",
    "Flow",
    "FlowError",
    "KeyedStream",
    "LeaseError",
    "Match",
    "Operator",
    "OperatorContext",
    "OperatorError",
    "PenstockError",
    "Process",
    "ProcessContext",
    "Record",
    "RowTypeError",
    "Run",
    "Sequential",
    "SetupError",
    "SourceError",
    "Spark",
    "StorageError",
    "Stream",
    "Threads",
    "Window",
    "WindowedStream",
    "absent",
    "agg",
    "aggregate",
    "arrival",
    "count_window",
    "distinct",
    "drop",
    "expr",
    "feedback",
    "filter",
    "flat_map",
    "flat_scan",
    "key_by",
    "library",
    "lookup",
    "map",
    "map_batches",
    "merge",
    "operate",
    "parallel",
    "pattern",
    "process",
    "read",
    "reduce",
    "rename",
    "run",
    "scan",
    "select",
    "session",
    "sink",
    "sliding",
    "sort",
    "start",
    "state",
    "step",
    "threaded",
    "top",
    "tumbling",
    "union",
    "window",
    "write",
]
__dir__ = __all__.copy
