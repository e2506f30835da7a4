"""Apache Beam on its runner for one machine: a stateful DoFn, Map and Filter, and a pool that the user keeps."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.coders import PickleCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from bench.peers.apart import Outcome, Task
from bench.workload import Event, Running, amount, large, look_up, lower, running, small

OUTPUTS: list[Any] = []
"""The runner runs in this process, so a function of this module may append to a list."""


def take(row: Any) -> None:
    """Keep a row."""
    OUTPUTS.append(row)


def pipeline() -> beam.Pipeline:
    """Make a pipeline for the Python runner of one machine."""
    return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))


class RunningFn(beam.DoFn):  # type: ignore[misc]
    """Keep count and sum of a key."""

    STATE = ReadModifyWriteStateSpec("running", PickleCoder())

    def process(self, element: tuple[int, Event], state: Any = beam.DoFn.StateParam(STATE)) -> Iterator[Running]:  # noqa: B008
        """Take one event."""
        new, output = running(state.read() or (0, 0.0), element[1])
        state.write(new)
        yield output


def w1(task: Task) -> Outcome:
    """Run the stateful DoFn."""
    with pipeline() as made:
        events = made | beam.Create(list(task.events()), reshuffle=False)
        keyed = events | beam.Map(lambda row: (row.key, row))
        _ = keyed | beam.ParDo(RunningFn()) | "take" >> beam.Map(take)
    return Outcome(OUTPUTS)


def w2(task: Task) -> Outcome:
    """Chain the four operators and count."""
    with pipeline() as made:
        events = made | beam.Create(list(task.events()), reshuffle=False)
        amounts = events | beam.Map(amount) | beam.Filter(large)
        kept = amounts | "lower" >> beam.Map(lower) | "small" >> beam.Filter(small)
        _ = kept | beam.combiners.Count.Globally() | "take" >> beam.Map(take)
    return Outcome(OUTPUTS[0])


def w3(task: Task) -> Outcome:
    """Ask for the rows of a batch at once; a pool keeps their order."""
    with ThreadPoolExecutor(task.in_flight) as pool, pipeline() as made:
        POOL.append(pool)
        serials = made | beam.Create(range(task.rows), reshuffle=False)
        batches = serials | beam.BatchElements(min_batch_size=task.in_flight * 8, max_batch_size=task.in_flight * 8)
        answers = batches | beam.FlatMap(ask_all, task.wait)
        _ = answers | "take" >> beam.Map(take)
    return Outcome(OUTPUTS)


POOL: list[ThreadPoolExecutor] = []


def ask_all(serials: list[int], wait: float) -> list[int]:
    """Ask for all rows of a batch."""
    return list(POOL[0].map(look_up, serials, [wait] * len(serials)))


PACKAGE = "apache-beam"
WORKLOADS = {"w1": w1, "w2": w2, "w3": w3}
