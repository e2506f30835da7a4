"""Drawings of flows: everything is there, nothing overlaps, and no name is taken for markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.flow.drawing import draw_mermaid, draw_svg, draw_text, place, shape_of

from ..counting import calls_of

SVG = "{http://www.w3.org/2000/svg}"
MARKUP = '</text><script>alert(1)</script>"]\n<img src=x onerror=alert(1)>&amp;'


def example(name: str = "calls") -> ps.Flow:
    flow = ps.Flow("fraud")
    calls = flow.source(name, [{"ts": 1, "phone": "a"}], time="ts")
    kept = calls.filter(lambda row: True)
    counts = kept.key_by("phone").window(10).count()
    counts.sink("counts")
    counts.late.sink("too late")
    large, rest = calls.split(lambda row: True)
    large.union(rest, kept).sink("alerts", ps.write.parquet("alerts/"))
    return flow


def test_text_names_each_operator_and_what_it_reads():
    lines = draw_text(example()).splitlines()
    assert lines[0].split() == ["calls", "source", "items"]
    assert "too late  sink         memory                 <- window.late" in lines
    assert "union     stateless    union                  <- split.out0, split.rest, filter" in lines


def test_mermaid_has_a_node_an_operator_and_an_arrow_a_stream():
    lines = draw_mermaid(example()).splitlines()
    assert lines[0] == "flowchart LR"
    assert '  n0(["calls<br/>items"])' in lines
    assert '  n2 -->|"late"| n4' in lines
    assert sum("-->" in line for line in lines) == 9


def test_svg_has_a_box_an_operator_none_over_another():
    root = ET.fromstring(draw_svg(example()))
    boxes = [
        {name: float(box.get(name, 0)) for name in ("x", "y", "width", "height")} for box in root.iter(f"{SVG}rect")
    ]
    assert len(boxes) == 8
    for i, one in enumerate(boxes):
        assert 0 <= one["x"] <= float(root.get("width")) - one["width"]
        assert 0 <= one["y"] <= float(root.get("height")) - one["height"]
        for other in boxes[:i]:
            apart = abs(one["x"] - other["x"]) >= one["width"] or abs(one["y"] - other["y"]) >= one["height"]
            assert apart, (one, other)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"calls", "counts", "late", "out0, rest"} <= set(texts)


@pytest.mark.parametrize("draw", [draw_svg, draw_mermaid], ids=["svg", "mermaid"])
def test_names_are_never_markup(draw):
    drawn = draw(example(MARKUP))
    assert "<script" not in drawn
    assert "<img" not in drawn
    if draw is draw_svg:
        tags = {element.tag for element in ET.fromstring(drawn).iter()}
        assert tags == {SVG + tag for tag in ("svg", "title", "defs", "marker", "path", "g", "rect", "text")}


@given(st.text(min_size=1))
def test_any_name_gives_a_document(name):
    ET.fromstring(draw_svg(example(name + "_")))


@given(st.data())
def test_no_two_places_of_a_layer_are_closer_than_one(data):
    count = data.draw(st.integers(1, 12))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    arrows = data.draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []
    placed = place(count, arrows)
    places = [*placed.boxes, *(bend for bends in placed.bends for bend in bends)]
    for layer in range(placed.layers):
        heights = sorted(height for at, height in places if at == layer)
        assert all(b - a >= 1 - 1e-6 for a, b in pairwise(heights))
    for source, target in arrows:
        assert placed.boxes[source][0] < placed.boxes[target][0]
    assert min(height for _, height in places) == 0


def test_twice_the_operators_are_twice_the_work():
    def wide(width: int) -> ps.Flow:
        flow = ps.Flow("wide")
        stream = flow.source("in", [1])
        ends = [stream.map(lambda n: n).filter(lambda n: n).map(lambda n: n) for _ in range(width)]
        ends[0].union(*ends[1:]).sink("out")
        return flow

    few, many = wide(33), wide(66)
    assert draw_svg(many).count("<rect") == 201
    assert calls_of(lambda: draw_svg(many)) < 2.5 * calls_of(lambda: draw_svg(few))


def test_a_notebook_gets_a_drawing_of_a_flow_that_is_not_finished():
    flow = ps.Flow("begun")
    assert flow._repr_svg_().startswith("<svg")
    back = flow.forward("back")
    assert "not connected" in flow._repr_svg_()
    back.connect(back.map(lambda row: row))
    assert flow._repr_svg_() is None  # a cycle: the notebook shows its repr instead


def test_shapes_say_what_operators_do():
    flow = ps.Flow("said")
    rows = flow.source("in", [{"k": 1, "v": 2}])
    rows.key_by("k").scan(lambda s, r: (s, r), 0, name="a").sink("out")
    ps.operate(ps.library.Zip(), rows, rows, name="b").sink("zipped")
    what = {box.name: (box.kind, box.what) for box in shape_of(flow).boxes}
    assert what["a"] == ("partitioned", "scan by k")
    assert what["b"] == ("stateful", "coroutine")
