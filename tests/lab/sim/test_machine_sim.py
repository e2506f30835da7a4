"""Check what sharing a core gives, and the shapes of the graphs."""

import pytest

from penstock.lab.sim.graphs import Graph, Operator, data_parallel, mixed, pipeline, reverse_tree, tree, with_rate
from penstock.lab.sim.machine import POWER8, XEON, Machine


def test_speed_by_hand() -> None:
    machine = Machine("m", cores=8, physical=4, sharing=(1.0, 1.5), context_switch=0.1)
    assert machine.speed(4) == 1.0
    # Half of the cores have two threads: 4 * (1 + 0.5 * 0.5) = 5 cores' worth for 6 threads.
    assert machine.speed(6) == pytest.approx(5 / 6)
    assert machine.speed(8) == pytest.approx(6 / 8)
    # Beyond the logical cores they take turns, and lose a tenth by it.
    assert machine.speed(16) == pytest.approx(0.9 * 6 / 16)


@pytest.mark.parametrize("machine", [XEON, POWER8])
def test_more_threads_never_compute_less_in_all(machine: Machine) -> None:
    totals = [threads * machine.speed(threads) for threads in range(1, machine.cores + 1)]
    assert totals == sorted(totals)
    assert totals[-1] == pytest.approx(machine.physical * machine.sharing[-1])


def test_graphs_have_the_papers_sizes() -> None:
    assert len(pipeline(1000, 1e-6).operators) == 1002
    assert len(data_parallel(1000, 1e-6).operators) == 1002
    assert len(mixed(10, 100, 1e-6).operators) == 1002
    # C-Stream: depth 6 and two branches make 63 busy operators.
    assert sum(operator.cost > 0 for operator in tree(6, 2, 1e-6).operators) == 63
    assert sum(operator.cost > 0 for operator in reverse_tree(6, 2, 1e-6).operators) == 63


def test_edges_lead_from_the_source_to_the_sink() -> None:
    for graph in (
        pipeline(3, 1.0),
        data_parallel(3, 1.0),
        mixed(2, 3, 1.0),
        tree(3, 2, 1.0),
        reverse_tree(3, 2, 1.0),
    ):
        count = len(graph.operators)
        reached = {0}
        for i, operator in enumerate(graph.operators):
            assert i in reached, (graph.name, i)
            reached |= set(operator.outputs)
        assert [i for i, operator in enumerate(graph.operators) if not operator.outputs] == [count - 1]
    assert mixed(2, 3, 1.0).depths == (0, 1, 2, 3, 1, 2, 3, 4)


def test_edges_that_go_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match="operator 1 must send to later operators"):
        Graph("loop", (Operator(0.0, (1,), source=True), Operator(1.0, (1,))))


def test_a_rate_is_shared_by_the_sources() -> None:
    graph = Graph("two", (Operator(0.0, (2,), source=True), Operator(0.0, (2,), source=True), Operator(0.0)))
    assert [operator.rate for operator in with_rate(graph, 100.0).operators] == [50.0, 50.0, None]
