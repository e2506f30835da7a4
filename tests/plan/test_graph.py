"""The graph of a flow, the plan made of it, and the layout of positions, worked out by hand."""

import dataclasses

import numpy as np
import pytest

from penstock import read
from penstock.errors import FlowError
from penstock.flow import Flow
from penstock.operators.base import Union
from penstock.operators.windows import Count, Session, Sliding, Tumbling
from penstock.plan.graph import Graph, Node, Port, marks_keep_up
from penstock.plan.plan import MAX_SOURCES, make_plan
from penstock.plan.positions import LAST, layout, timed_width

from ..running import records

ROWS = [{"t": 1, "k": 1}]


def nodes(**reads: str) -> dict[str, Node]:
    """Make a graph of unions; `b="a c"` says that b reads a and c."""
    return {
        name: Node(name, Union(), tuple(Port(above) for above in inputs.split()), (None,), None)
        for name, inputs in reads.items()
    }


def a_source(flow: Flow, name: str, **options):
    return flow.source(name, read.items(ROWS), time="t", **options)


class TestMarksKeepUp:
    """The watermark at a row is surely not behind its time: then a key has one session at a time."""

    def told(self, stream) -> bool:
        return marks_keep_up(stream.flow.nodes, stream.port)

    def test_from_one_source_by_operators_without_memory(self):
        rows = a_source(Flow("f"), "in")
        assert self.told(rows)
        assert self.told(rows.filter(lambda row: row.k > 0).flat_map(lambda row: [row]))
        assert self.told(rows.map(lambda row: row).union(rows.filter(lambda row: row.k > 0)))

    def test_not_with_slack_state_another_source_or_rows_against_the_order(self):
        flow = Flow("f")
        rows = a_source(flow, "in")
        assert not self.told(a_source(flow, "slack", slack=1))
        assert not self.told(rows.scan(lambda state, row: (state, row)))
        assert not self.told(rows.union(a_source(flow, "other")))
        assert not self.told(a_source(flow, "ordered", order_by="t", on_late="divert").late)

    def test_sessions_ask(self):
        for slack in (0, 1):
            made = a_source(Flow("f"), "in", slack=slack).key_by("k").window(Session(3)).count()
            assert made.node.operator.logic.one_at_a_time == (slack == 0)


class TestGraph:
    def test_each_node_stands_behind_those_it_reads(self):
        assert list(Graph(nodes(d="b c", b="a", c="a", a="")).nodes) == ["a", "b", "c", "d"]

    def test_the_order_of_declaration_stays_where_it_is_free(self):
        assert list(Graph(nodes(a="", x="", b="a", y="x", c="b y")).nodes) == ["a", "x", "b", "y", "c"]

    def test_edges_are_numbered_by_declaration_of_their_reader(self):
        graph = Graph(nodes(s="", x="s", y="s", u="y x"))
        assert [(edge.target, edge.port, edge.index) for edge in graph.outgoing["s"]] == [
            ("x", 0, 0),
            ("y", 0, 1),
        ]
        assert [(edge.source.node, edge.port) for edge in graph.edges if edge.target == "u"] == [
            ("y", 0),
            ("x", 1),
        ]

    def test_one_stream_read_twice_has_two_edges(self):
        graph = Graph(nodes(s="", u="s s"))
        assert [(edge.port, edge.index) for edge in graph.outgoing["s"]] == [(0, 0), (1, 1)]

    def test_below(self):
        graph = Graph(nodes(a="", b="a", c="b", x=""))
        assert graph.below("b") == {"b", "c"}
        assert graph.below("a") == {"a", "b", "c"}

    @pytest.mark.parametrize(
        ("reads", "cycle"),
        [
            ({"a": "a"}, "a -> a"),
            ({"s": "", "a": "s c", "b": "a", "c": "b"}, "a -> b -> c -> a"),
            ({"s": "", "x": "s b", "b": "x"}, "x -> b -> x"),
        ],
    )
    def test_a_cycle_is_named_in_the_direction_of_the_rows(self, reads, cycle):
        with pytest.raises(FlowError, match="the flow has a cycle: " + cycle + "; .* so break it"):
            Graph(nodes(**reads))

    def test_changed_nodes_leave_the_order_of_a_fan_out_as_it_was(self):
        """The sorted order is another one where a stream is read before it is defined."""
        graph = Graph(nodes(later="second", s="", first="s", second="s"))
        assert list(graph.nodes) == ["s", "second", "later", "first"]
        changed = graph.replaced(nodes(s=""))
        assert [edge.target for edge in changed.outgoing["s"]] == ["first", "second"]
        assert changed.declared == graph.declared

    def test_a_long_chain_is_no_trouble(self):
        chain = {f"n{i}": f"n{i - 1}" if i else "" for i in range(5000)}
        assert len(Graph(nodes(**chain)).nodes) == 5000


class TestPlan:
    def test_finds_sources_sinks_and_stateful_operators(self):
        flow = Flow("f")
        b, a = a_source(flow, "b"), a_source(flow, "a")
        b.union(a).key_by("k").scan(lambda s, r: (s, r), name="scan").sink("out").nodes["out"]
        plan = make_plan(flow)
        assert [node.name for node in plan.sources] == ["b", "a"]
        assert [node.name for node in plan.sinks] == ["out"]
        assert [node.name for node in plan.keyed] == ["scan"]

    def test_sources_stay_in_the_order_of_declaration_behind_a_forward(self):
        flow = Flow("f")
        later = flow.forward("later")
        a = a_source(flow, "a")
        later.union(a).sink("out")
        later.connect(a_source(flow, "b"))
        assert [node.name for node in make_plan(flow).sources] == ["a", "b"]

    def test_rows_take_their_type_before_state_and_sinks(self):
        stream = records(ROWS)
        stream.map(lambda r: r, name="m").key_by("k").scan(lambda s, r: (s, r), name="scan").sink("out")
        plan = make_plan(stream.flow)
        cut = {edge.target for edge in plan.graph.edges if plan.is_cut(edge)}
        assert cut == {"scan", "out"}

    def test_the_most_sources(self):
        flow = Flow("f")
        streams = [a_source(flow, f"s{i}") for i in range(MAX_SOURCES + 1)]
        streams[0].union(*streams[1:]).sink("out")
        with pytest.raises(FlowError, match="flow 'f' has 33 sources; 32 is the most"):
            make_plan(flow)


def shapes(flow: Flow):
    """Return {operator: (width of its input positions, width of its output positions)}."""
    return {name: (shape.width, shape.out_width) for name, shape in layout(flow.graph()).shapes.items()}


def routes(flow: Flow, name: str) -> set:
    return {(route.source, route.delay, route.path) for route in layout(flow.graph()).shapes[name].marks}


class TestLayout:
    def test_most_flows_need_one_number(self):
        stream = records(ROWS).map(lambda r: r, schema={"k": int}, name="m").filter(bool, name="f")
        stream.key_by("k").scan(lambda s, r: (s, r), name="scan").sink("out")
        assert shapes(stream.flow) == dict.fromkeys(("in", "m", "f", "scan", "out"), (1, 1))

    def test_order_by_comes_first(self):
        flow = records(ROWS, order_by=["t", "k"]).sink("out")
        assert layout(flow.graph()).base == 3
        assert shapes(flow)["out"] == (3, 3)

    def test_the_widest_source_makes_room_for_its_places(self):
        """As streaming DataFrames have them, of topic, partition and offset: with fewer, rows share a place."""

        class Wide(read.Items):
            own_width = 3

        flow = Flow("wide")
        flow.source("wide", Wide(ROWS)).union(flow.source("narrow", read.rate(1))).sink("out")
        made, own = layout(flow.graph()), [np.array(numbers) for numbers in ([1, 1, 1], [0, 0, 2], [4, 5, 0])]
        assert shapes(flow)["out"] == (4, 4)
        assert [column.tolist() for column in made.places(0, own)] == [[0, 0, 0], [1, 1, 1], [0, 0, 2], [9, 11, 1]]
        with pytest.raises(AssertionError, match="a place of 3 numbers, where 1 are the most"):
            dataclasses.replace(made, own=1).places(0, own)

    def test_several_rows_for_one_add_the_emission_index(self):
        stream = records(ROWS).flat_map(lambda r: [r], name="fm", schema={"k": int})
        flow = stream.key_by("k").flat_scan(lambda s, r: (s, [r]), name="fs").sink("out")
        assert shapes(flow) == {"in": (1, 1), "fm": (1, 2), "fs": (2, 3), "out": (3, 3)}

    @pytest.mark.parametrize("spec", [Tumbling(10), Sliding(10, 5), Session(3), Count(2)], ids=str)
    def test_emitting_at_marks_adds_fire_time_epoch_opening_row_and_index(self, spec):
        flow = records(ROWS).window(spec).count(name="w").sink("out")
        assert shapes(flow)["w"] == (1, 1 + timed_width(1))
        assert timed_width(1) == 4

    def test_nested_windows(self):
        flow = records(ROWS).window(2).count(name="a").window(4).count(name="b").sink("out")
        assert [shapes(flow)[name] for name in ("a", "b", "out")] == [(1, 5), (5, 13), (13, 13)]

    def test_a_fan_out_that_never_meets_adds_nothing(self):
        stream = records(ROWS)
        stream.sink("x")
        stream.sink("y")
        assert layout(stream.flow.graph()).fanouts == frozenset()
        assert shapes(stream.flow)["y"] == (1, 1)

    def test_a_fan_out_that_meets_again_adds_the_edge(self):
        stream = records(ROWS)
        flow = stream.map(str, name="x").union(stream.map(str, name="y"), name="u").sink("out")
        assert layout(flow.graph()).fanouts == {"in"}
        assert shapes(flow) == {"in": (1, 1), "x": (2, 2), "y": (2, 2), "u": (2, 2), "out": (2, 2)}

    def test_a_stream_read_twice_meets_itself(self):
        stream = records(ROWS)
        stream.union(stream, name="u").sink("out")
        assert layout(stream.flow.graph()).fanouts == {"in"}

    def test_the_shorter_input_of_a_fan_in_is_padded(self):
        flow = Flow("f")
        flow.source("a", [1]).flat_map(lambda r: [r], name="fm").union(flow.source("b", [1]), name="u").sink("out")
        assert shapes(flow)["u"] == (2, 2)

    def test_marks_come_behind_what_they_made_others_emit(self):
        flow = records(ROWS).flat_map(lambda r: [r], name="fm").window(2).count(name="w").sink("out")
        assert routes(flow, "w") == {("in", 0, (LAST,))}
        assert routes(flow, "out") == {("in", 0, (LAST,) * (1 + timed_width(2)))}

    def test_marks_take_the_last_edge_to_a_fan_in(self):
        stream = records(ROWS)
        flow = stream.map(str, name="x").union(stream.map(str, name="y"), name="u").sink("out")
        assert routes(flow, "x") == {("in", 0, (0,))}
        assert routes(flow, "u") == {("in", 0, (1,))}

    def test_a_sorter_delays_marks(self):
        stream = records(ROWS)
        slow, fast = stream.sort(slack=5, name="sort"), stream.map(lambda r: r, name="m")
        flow = slow.union(fast, name="u").sink("out")
        assert {(source, delay) for source, delay, _ in routes(flow, "u")} == {("in", 5), ("in", 0)}

    def test_each_source_has_its_own_route(self):
        flow = Flow("f")
        a_source(flow, "a").union(a_source(flow, "b"), name="u").sink("out")
        assert routes(flow, "u") == {("a", 0, ()), ("b", 0, ())}
