"""Write W1 in Bytewax: a stateful map by key, one worker."""

from collections.abc import Sequence
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow

from bench.peers.bytewax_common import BATCH, EventSource, ListSink, run_dataflow
from bench.workload import Event, Running, State, running


def _step(state: State | None, row: Event) -> tuple[State, Running]:
    return running(state or (0, 0.0), row)


def run(paths: Sequence[Path], batch: int = BATCH) -> tuple[list[Running], float]:
    """Run W1 over the files; return the outputs as they came out, and the seconds."""
    outputs: list[tuple[str, Running]] = []
    flow = Dataflow("w1")
    events = op.input("events", flow, EventSource(paths, batch))
    keyed = op.key_on("key", events, lambda row: str(row.key))  # only strings can be keys
    op.output("out", op.stateful_map("running", keyed, _step), ListSink(outputs))
    seconds = run_dataflow(flow)
    return [row for _, row in outputs], seconds
