"""Bytewax: stateful_map by key, map and filter; for what waits a pool of threads that the user keeps."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource

from bench.peers import bytewax_w1, bytewax_w2
from bench.peers.apart import Outcome, Task
from bench.peers.bytewax_common import ListSink, run_dataflow
from bench.workload import look_up


def w1(task: Task) -> Outcome:
    """Run the stateful map."""
    return Outcome(bytewax_w1.run(task.paths)[0])


def w2(task: Task) -> Outcome:
    """Run the four operators."""
    return Outcome(bytewax_w2.run(task.paths)[0])


def w3(task: Task) -> Outcome:
    """Ask for the rows of a batch at once; a pool keeps their order."""
    outputs: list[int] = []
    with ThreadPoolExecutor(task.in_flight) as pool:

        def ask_all(serials: Sequence[int]) -> list[int]:
            return list(pool.map(look_up, serials, [task.wait] * len(serials)))

        flow = Dataflow("w3")
        serials = op.input("rows", flow, TestingSource(range(task.rows), batch_size=task.in_flight * 8))
        op.output("out", op.flat_map_batch("ask", serials, ask_all), ListSink(outputs))
        run_dataflow(flow)
    return Outcome(outputs)


PACKAGE = "bytewax"
WORKLOADS = {"w1": w1, "w2": w2, "w3": w3}
