"""Write W2 in Bytewax: map, filter, map, filter, and a sink that counts; one worker."""

from collections.abc import Sequence
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow

from bench.peers.bytewax_common import BATCH, CountSink, EventSource, run_dataflow
from bench.workload import amount, large, lower, small


def run(paths: Sequence[Path], batch: int = BATCH) -> tuple[int, float]:
    """Run W2 over the files; return the count and the seconds."""
    count = [0]
    flow = Dataflow("w2")
    events = op.input("events", flow, EventSource(paths, batch))
    amounts = op.filter("large", op.map("amount", events, amount), large)
    op.output("count", op.filter("small", op.map("lower", amounts, lower), small), CountSink(count))
    seconds = run_dataflow(flow)
    return count[0], seconds
