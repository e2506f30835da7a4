"""Treat a flow worse than any engine does, and see that what comes out is what it means.

The flow runs in the processing elements that engines use, its output ports refusing every other push, and is held to
the reference engine. A correct operator passes whatever is done here; one that keeps something outside of its state,
or looks at where a batch ends, does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Unpack

from penstock.connectors.sequence import Order, order_of
from penstock.connectors.tables import loaded
from penstock.errors import FlowError, OperatorError, PenstockError
from penstock.plan.plan import Plan, make_plan
from penstock.sequential import SequentialEngine
from penstock.testing.exact import assert_same
from penstock.testing.flows import Rows, SourceOptions, Tested, flow_under_test, one_or_all
from penstock.testing.trial import InputRows, Outcome, Trial, cuts, input_sequence
from penstock.threads.settings import Settings

CROWD = Settings(workers=4, partitions=3, capacity=1, quantum=0.0)
CUTS = (
    "no result may depend on where a stream is cut in batches: look at rows, not at the batch (in map_batches), and "
    "keep what must be remembered in the operator's state"
)
RESTARTS = (
    "what an operator must remember belongs in its state, and must be the same when it is pickled and read again; what "
    "is kept in variables, attributes or globals is gone after a restart"
)
REPLAYS = (
    "after a crash rows are processed again with the state from before: keep nothing outside of the state, and use "
    "neither the clock nor randomness"
)
CROWDS = (
    "rows of different keys, and of operators without state, are processed side by side: share nothing between them, "
    "and give rows out in an order that does not depend on timing"
)


def torture(
    tested: Tested,
    rows: Rows,
    *,
    most: int = 128,
    seed: int = 0,
    restarts: bool = True,
    **options: Unpack[SourceOptions],
) -> Any:
    """Run a flow, or a stage, in every unkind way; return what comes out, or fail with the first difference.

    - every cut of the input in batches, or `most` of them, drawn by `seed`, where there are more;
    - state saved, and read by a fresh copy of the flow, between any two rows, and between all of them and all ends
      of sources: a co-routine then begins again at each of its waits;
    - each row processed, thrown away and processed again with the state from before, as after a crash;
    - output ports that are full at every other push, in all of these;
    - several workers at once, a row a batch, co-routines put aside wherever they can be.

    With `restarts=False` nothing is saved and read, for flows that never run where it is: co-routines whose frames must
    live on. `rows` and `options` are those of `run_list`. A flow that fails must fail in the same way each time; the
    error is then raised.
    """
    if most < 2:
        raise ValueError(f"most={most}; at least the whole and single rows are tried")
    rack = _Rack(loaded(make_plan(flow_under_test(tested, rows, options))), most, seed)
    rack.cut()
    if restarts:
        rack.restart()
        rack.replay()
    rack.crowd()
    if rack.meant.error is not None:
        raise rack.meant.error
    return one_or_all(rack.meant.rows)


class _Rack:
    """The flow that is tested, and what it means."""

    def __init__(self, plan: Plan, most: int, seed: int) -> None:
        from penstock.spark.ship import pack_plan

        self.sequence = input_sequence(plan)
        # Packed before anything has run, and unpacked for each trial: each begins with what the user wrote.
        self._plan, self._packed = plan, pack_plan(plan, {})
        self._most, self._random = most, random.Random(seed)
        self.meant = reference(self.copy(), self.sequence)

    def copy(self) -> Plan:
        """Return a fresh copy of the plan, as a worker gets it."""
        from penstock.spark.ship import unpack_plan

        return loaded(unpack_plan(self._packed).plan, self._plan)

    def cut(self) -> None:
        for sizes in cuts(len(self.sequence), self._most, self._random):

            def run(trial: Trial, sizes: tuple[int, ...] = sizes) -> None:
                start = 0
                for size in sizes:
                    trial.run(trial.parts(self.sequence[start : start + size]))
                    start += size
                trial.run([trial.ends()])

            self.compare(
                Trial(self.copy()), run, f"the input cut in batches of {', '.join(map(str, sizes))} rows", CUTS
            )

    def restart(self) -> None:
        length = len(self.sequence)
        places = range(length + 1)
        if length + 1 > self._most:
            places = sorted(self._random.sample(places, self._most))  # type: ignore[assignment]
        for place in places:

            def run(trial: Trial, place: int = place) -> None:
                trial.run(trial.parts(self.sequence[:place]))
                trial.begin(trial.save(), self.copy())
                trial.run(trial.parts(self.sequence[place:]))
                trial.run([trial.ends()])

            self.compare(Trial(self.copy()), run, f"state saved and read again behind row {place}", RESTARTS)

        def everywhere(trial: Trial) -> None:
            for item in self.sequence:
                trial.run(trial.parts([item]))
                trial.begin(trial.save(), self.copy())
            for node in trial.plan.sources:
                trial.run([trial.ends(node.name)])
                trial.begin(trial.save(), self.copy())

        self.compare(
            Trial(self.copy()), everywhere, "state saved and read again behind each row and each source", RESTARTS
        )

    def replay(self) -> None:
        def run(trial: Trial) -> None:
            for item in [*self.sequence, None]:
                batches = [trial.ends()] if item is None else trial.parts([item])
                saved = trial.save()
                trial.run(batches, count=False)
                trial.begin(saved)
                trial.run(batches)

        self.compare(
            Trial(self.copy()), run, "each row processed, thrown away and processed again, as after a crash", REPLAYS
        )

    def crowd(self) -> None:
        def run(trial: Trial) -> None:
            batches = [cut for item in self.sequence for cut in trial.parts([item])]
            trial.run([*batches, trial.ends()])

        self.compare(Trial(self.copy(), CROWD), run, f"{CROWD.workers} workers at once, a row a batch", CROWDS)

    def compare(self, trial: Trial, run: Callable[[Trial], None], what: str, hint: str) -> None:
        """Run a trial and hold it to what the flow means."""
        error: PenstockError | None = None
        try:
            run(trial)
        except PenstockError as found:
            error = found
        finally:
            trial.close()
        problem = self._difference(Outcome(trial.results, error))
        if problem is not None:
            raise AssertionError(f"with {what}, something else comes out than row by row.\n{problem}\n{hint}")

    def _difference(self, found: Outcome) -> str | None:
        meant = self.meant
        if _described(found.error) != _described(meant.error):
            return f"  expected {_described(meant.error)}\n  found    {_described(found.error)}"
        rows = meant.rows
        if meant.error is not None:
            # What was published before the error is a prefix of what is meant; how long a one depends on the cut.
            rows = {name: some[: len(found.rows[name])] for name, some in rows.items()}
        try:
            assert_same(rows, found.rows)
        except AssertionError as error:
            return str(error)
        return None


def reference(plan: Plan, sequence: InputRows) -> Outcome:
    """Run the input on the reference engine."""
    engine = SequentialEngine(plan)
    shown: dict[str, Order] = {}
    try:
        for name, row in sequence:
            order = order_of(plan.source(name), row)
            shown[name] = max(order, shown.get(name, order))
            take = engine.row if order == shown[name] else engine.late
            take(name, row)
        for node in plan.sources:
            engine.end(node.name)
    except FlowError:
        raise
    except PenstockError as error:
        return Outcome(engine.results, error)
    return Outcome(engine.results)


def _described(error: PenstockError | None) -> str:
    if error is None:
        return "no error"
    return f"{error.operator!r}: {error.error}; row {error.row}" if isinstance(error, OperatorError) else str(error)
