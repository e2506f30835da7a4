"""What the papers compare with can be chosen, does what it says, and leaves the results as they are."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock import lab
from penstock.cli import UsageError
from penstock.cli.run import _options
from penstock.elastic.rebinding import Rebinding
from penstock.elastic.thread_level import ThreadLevel
from penstock.errors import FlowError
from penstock.lab.baselines import GreedyRebinding, StreamsRules
from penstock.order.reorder import LockedReorderBuffer, ReorderBuffer
from penstock.threads.rebinding import BarrierBinding, BindingTable

from ..how import how


def flow() -> ps.Flow:
    made = ps.Flow("lab")
    numbers = made.source("in", ps.read.items(range(500), schema=int)).map(lambda n: n + 1, name="more")
    keyed = numbers.key_by(lambda n: n % 7)
    keyed.scan(lambda count, n: (count + 1, (n, count)), 0, schema={"n": int, "before": int}, name="counted").sink(
        "out"
    )
    return made


def run(**options: Any) -> Any:
    started = ps.run(flow(), **how("threads", batch_rows=7, **options))
    assert [tuple(row) for row in started.results["out"]] == [(n, (n - 1) // 7) for n in range(1, 501)]
    return started.engine


@pytest.mark.parametrize(
    ("binding", "controller", "kind"),
    [
        (None, Rebinding, BindingTable),
        (lab.Static(), None, BindingTable),
        (lab.Greedy(), GreedyRebinding, BindingTable),
        (lab.Barrier(), Rebinding, BarrierBinding),
        (lab.Barrier(GreedyRebinding()), GreedyRebinding, BarrierBinding),
    ],
)
def test_bindings(binding: Any, controller: Any, kind: Any) -> None:
    engine = run(model="bound", threads=3, binding=binding)
    assert type(engine.element.model._binding) is kind
    found = {each.name: type(each.controller) for each in engine.pilot.levers}
    assert found.get("rebinding") is controller


def test_the_reorder_buffer() -> None:
    for reorder, kind in ((None, ReorderBuffer), (lab.Locked(), LockedReorderBuffer)):
        engine = run(threads=3, reorder=reorder)
        stations = engine.element.stations
        buffers = [stations["more"]._reorder, stations["counted"]._reorder, engine.element.around.published]
        assert [type(buffer) for buffer in buffers] == [kind] * 3


def test_the_published_rules_of_the_thread_level() -> None:
    for threads, kind in (
        (None, ThreadLevel),
        (lab.StreamsRules(), lab.StreamsRules),
        (StreamsRules(high=3), StreamsRules),
    ):
        engine = run(threads=threads)
        assert {each.name: type(each.controller) for each in engine.pilot.levers}["threads"] is kind
    assert lab.StreamsRules().high > 1
    (start,) = (line for line in engine.decisions if line.controller == "threads" and line.what == "start")
    assert start.statistics["type"] == "streams_rules"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"binding": lab.Greedy()}, 'binding= needs model="bound"'),
        ({"binding": "greedy", "model": "bound"}, r"give lab.Static\(\), lab.Greedy\(\)"),
        ({"reorder": "locked"}, r"give lab.Locked\(\)"),
        ({"workers": lab.StreamsRules(), "model": "bound"}, 'needs model="dynamic"'),
        ({"workers": lab.StreamsRules(), "latency": "1 s"}, "latency= is for Penstock's own rule"),
        ({"workers": 2.5}, "give a whole number"),
    ],
)
def test_what_would_do_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        ps.run(flow(), **how("threads", **options))
    with pytest.raises(TypeError, match="Sequential has no option 'reorder'"):
        ps.Sequential(reorder=lab.Locked())  # type: ignore[call-arg]


def read(*given: str) -> Any:
    import argparse

    from penstock.cli.run import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return _options(parser.parse_args(["flow.py", "--engine", "threads", *given])).on


def test_names_on_the_command_line() -> None:
    assert read("--model", "bound", "--binding", "greedy").binding == lab.Greedy()
    assert read("--model", "bound", "--binding", "static").binding == lab.Static()
    assert read("--model", "bound", "--binding", "barrier").binding == lab.Barrier()
    assert read("--reorder", "locked").reorder == lab.Locked()
    assert read("--workers", "streams-rules").workers == lab.StreamsRules()
    assert read("--workers", "utilization").workers == "utilization"
    with pytest.raises(UsageError, match="--binding needs --model bound"):
        read("--binding", "greedy")
    with pytest.raises(UsageError, match="--workers StreamsRules needs --model dynamic"):
        read("--workers", "streams-rules", "--model", "manual")
