"""Check that the shipped policies drive the simulator, and that they differ as Ordered says."""

from itertools import pairwise

import pytest

from penstock.lab.sim.choosing import PolicyChooser
from penstock.lab.sim.graphs import Graph, Operator, tree, with_rate
from penstock.lab.sim.machine import Machine, Synchronization
from penstock.lab.sim.pe import PE
from penstock.threads.policies import POLICIES, by_name

COSTS = Synchronization(claim=1e-6, tuple_passing=1e-7, lock=1e-7, wake=5e-6)
MACHINE = Machine("sixteen", cores=16, physical=16, synchronization=COSTS)


def query(permits: int | None = None) -> Graph:
    """Return a pipeline of stateless operators of uneven cost, one of them a filter, one with state."""
    costs = (20e-6, 5e-6, 60e-6, 10e-6, 30e-6)
    operators = [
        Operator(cost, (i + 2,), permits=1 if i == 3 else permits, selectivity=0.5 if i == 1 else 1.0)
        for i, cost in enumerate(costs)
    ]
    return Graph("query", (Operator(1e-6, (1,), source=True), *operators, Operator(0.0)))


def run(name: str, graph: Graph, level: int = 4, seconds: float = 0.5) -> tuple[PE, float, float]:
    """Return the PE, the rows a second at the sink, and the mean latency, without the first fifth."""
    chooser = PolicyChooser(by_name(name), seed=1)
    pe = PE(graph, MACHINE, level=level, rows=16, capacity=32, time_slice=0.002, chooser=chooser)
    pe.run(seconds / 5)
    before, seen = pe.processed[-1], len(pe.latencies)
    pe.run(seconds)
    later = [latency for _, latency in pe.latencies[seen:]]
    return pe, (pe.processed[-1] - before) / seconds, sum(later) / len(later)


@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy_keeps_the_flow_going_and_in_order(name: str) -> None:
    pe, rate, _ = run(name, query())
    born = [now - latency for now, latency in pe.latencies]
    assert all(a <= b + 1e-12 for a, b in pairwise(born))
    # Half of the rows pass the filter; a row that does costs 125 us in all, one that does not 25.
    best = 4 / (2 * 25e-6 + 100e-6)
    assert rate > 0.7 * best


def test_last_in_pipeline_has_less_latency_than_pushing_from_the_front() -> None:
    """Ordered, figure 8b: LP pulls rows out, QST lets them pile up."""
    _, _, pulled = run("lp", query())
    _, _, pushed = run("qst", query())
    assert pulled < 0.7 * pushed


def test_current_throughput_is_as_good_as_any() -> None:
    """Ordered, figure 8a: no other policy processes clearly more than CT."""
    rates = {name: run(name, query())[1] for name in ("ct", "lp", "et", "qst", "random")}
    assert rates["ct"] >= 0.93 * max(rates.values())


def test_a_policy_sees_the_flow_of_a_split() -> None:
    """In a tree each operator gets half of its parent's rows: CT must not take leaves for bottlenecks."""
    graph = with_rate(tree(4, 2, 20e-6), 30_000.0)
    _, rate, _ = run("ct", graph, level=8)
    assert rate == pytest.approx(30_000, rel=0.05)


def test_the_same_seed_makes_the_same_choices() -> None:
    first, second = run("random", query())[1], run("random", query())[1]
    assert first == second
