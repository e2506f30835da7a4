"""Draw a flow: as SVG (for notebooks and files), as Mermaid (for Markdown), as text.

Boxes are placed in layers from left to right so that few arrows cross, by the method of Sugiyama: a box stands one
layer after the last one that it reads; an arrow over several layers takes a place of its own in each; the places of a
layer are put in the order of the means of their neighbours, back and forth a few times; then each moves towards its
neighbours as far as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from penstock.flow import Flow
from penstock.operators.base import Keyed, Kind, Sink, Source, Union
from penstock.plan.graph import Node


@dataclass(frozen=True)
class Box:
    name: str
    kind: Kind
    what: str
    """What it does, in a few words."""


@dataclass(frozen=True)
class Arrow:
    source: int
    target: int
    label: str
    """The output port, where the operator has several."""


@dataclass(frozen=True)
class NodeShape:
    """A flow as boxes, each after those that it reads, and arrows between their numbers."""

    name: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def shape_of(flow: Flow) -> NodeShape:
    """Return what there is to draw; raises `FlowError` for a flow with a cycle."""
    graph = flow.graph()
    number = {name: i for i, name in enumerate(graph.nodes)}
    boxes = tuple(Box(name, node.operator.kind, _what(node)) for name, node in graph.nodes.items())
    arrows = []
    for edge in graph.edges:
        outputs = graph.nodes[edge.source.node].operator.outputs
        label = outputs[edge.source.index] if len(outputs) > 1 else ""
        arrows.append(Arrow(number[edge.source.node], number[edge.target], "" if label == "out" else label))
    return NodeShape(flow.name, boxes, tuple(arrows))


def _what(node: Node) -> str:
    operator = node.operator
    if isinstance(operator, Source):
        return _words(getattr(operator.reader, "format", None) or type(operator.reader).__name__)
    if isinstance(operator, Sink):
        return _words(getattr(operator.writer, "format", None) or type(operator.writer).__name__)
    if isinstance(operator, Union) and not node.inputs:
        return "not connected"
    if isinstance(operator, Keyed):
        logic = _words(type(operator.logic).__name__).removesuffix(" logic")
        return f"{logic} by {operator.keys[0]}" if operator.keys else logic
    return _words(type(operator).__name__)


def _words(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


SWEEPS = 4
"""How often the layers are gone through, forward and back."""


@dataclass(frozen=True)
class Placed:
    """Where everything stands: layers and heights, in units of a place."""

    boxes: tuple[tuple[int, float], ...]
    """Layer and height of each box."""
    bends: tuple[tuple[tuple[int, float], ...], ...]
    """For each arrow, the places that it passes between its ends."""
    layers: int
    height: float


def place(boxes: int, arrows: Sequence[tuple[int, int]]) -> Placed:
    """Place boxes, each numbered after those with arrows to it."""
    layer = [0] * boxes
    for source, target in sorted(arrows, key=lambda arrow: arrow[1]):
        layer[target] = max(layer[target], layer[source] + 1)
    layer_of = list(layer)
    links: list[tuple[int, int]] = []
    chains: list[list[int]] = []
    for source, target in arrows:
        chain = []
        before = source
        for between in range(layer[source] + 1, layer[target]):
            layer_of.append(between)
            chain.append(len(layer_of) - 1)
            links.append((before, chain[-1]))
            before = chain[-1]
        links.append((before, target))
        chains.append(chain)
    heights = _heights(layer_of, links)
    low = min(heights, default=0.0)
    heights = [height - low for height in heights]
    return Placed(
        tuple((layer_of[box], heights[box]) for box in range(boxes)),
        tuple(tuple((layer_of[item], heights[item]) for item in chain) for chain in chains),
        max(layer_of, default=-1) + 1,
        max(heights, default=-1.0) + 1,
    )


def _heights(layer_of: Sequence[int], links: Sequence[tuple[int, int]]) -> list[float]:
    count = max(layer_of, default=-1) + 1
    layers: list[list[int]] = [[] for _ in range(count)]
    for item, layer in enumerate(layer_of):
        layers[layer].append(item)
    above: list[list[int]] = [[] for _ in layer_of]
    below: list[list[int]] = [[] for _ in layer_of]
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    rank = [0.0] * len(layer_of)
    for items in layers:
        for place_, item in enumerate(items):
            rank[item] = place_
    sweeps = [*((items, above) for items in layers), *((items, below) for items in reversed(layers))] * SWEEPS
    for items, near in sweeps:
        means = {item: _mean([rank[other] for other in near[item]], rank[item]) for item in items}
        items.sort(key=means.__getitem__)
        for place_, item in enumerate(items):
            rank[item] = place_
    height = list(rank)
    for items, near in sweeps:
        _settle(items, near, height)
    return height


def _settle(layer: Sequence[int], near: Sequence[Sequence[int]], height: list[float]) -> None:
    """Move the places of a layer towards their neighbours, one apart at least, their order kept."""
    wanted = [_mean([height[other] for other in near[item]], height[item]) for item in layer]
    # Groups that want to overlap stand together at the mean of what they want.
    groups: list[tuple[float, int]] = []
    for want in wanted:
        start, size = want, 1
        while groups and groups[-1][0] + groups[-1][1] > start:
            before, many = groups.pop()
            start = (before * many + (start - many) * size) / (many + size)
            size += many
        groups.append((start, size))
    places = [start + i for start, size in groups for i in range(size)]
    for item, where in zip(layer, places, strict=True):
        height[item] = where


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def draw_text(flow: Flow) -> str:
    shape = shape_of(flow)
    ports: list[list[str]] = [[] for _ in shape.boxes]
    for arrow in shape.arrows:
        name = shape.boxes[arrow.source].name
        ports[arrow.target].append(f"{name}.{arrow.label}" if arrow.label else name)
    lines = [
        (box.name, box.kind, box.what, f"<- {', '.join(reads)}" if reads else "")
        for box, reads in zip(shape.boxes, ports, strict=True)
    ]
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


BRACKETS = {
    "source": ("([", "])"),
    "stateless": ("[", "]"),
    "partitioned": ("[[", "]]"),
    "stateful": ("[[", "]]"),
    "sink": ("[(", ")]"),
}


def draw_mermaid(flow: Flow) -> str:
    shape = shape_of(flow)
    lines = ["flowchart LR", *(f"  n{i}{_node(box)}" for i, box in enumerate(shape.boxes))]
    for arrow in shape.arrows:
        label = f'|"{_escaped(arrow.label)}"|' if arrow.label else ""
        lines.append(f"  n{arrow.source} -->{label} n{arrow.target}")
    return "\n".join(lines)


def _node(box: Box) -> str:
    opening, closing = BRACKETS[box.kind]
    return f'{opening}"{_escaped(box.name)}<br/>{_escaped(box.what)}"{closing}'


def _escaped(text: str) -> str:
    """Write as a numbered entity what Mermaid or HTML could take for markup."""
    return "".join(c if c.isalnum() or c in " _-.,:" else f"#{ord(c)};" for c in text)


WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 156, 40, 56, 22, 12
"""A box, the room between layers, the room between boxes, and around all of it."""
LETTERS = 22
FILLS = {
    "source": ("#dbeafe", "#2563eb"),
    "stateless": ("#f1f5f9", "#64748b"),
    "partitioned": ("#dcfce7", "#16a34a"),
    "stateful": ("#fef3c7", "#d97706"),
    "sink": ("#ede9fe", "#7c3aed"),
}
"""The colour of each kind, and that of its border; text is dark on all of them, whatever stands around."""


def draw_svg(flow: Flow) -> str:
    """Return the flow as an SVG document; every name in it is escaped, and nothing in it runs or is loaded."""
    shape = shape_of(flow)
    joined = _joined(shape.arrows)
    placed = place(len(shape.boxes), [(arrow.source, arrow.target) for arrow in joined])
    width = 2 * EDGE + max(1, placed.layers) * (WIDTH + ACROSS) - ACROSS
    height = 2 * EDGE + max(1.0, placed.height) * (HEIGHT + DOWN) - DOWN
    arrows = [
        _arrow(arrow, placed.boxes[arrow.source], bends, placed.boxes[arrow.target])
        for arrow, bends in zip(joined, placed.bends, strict=True)
    ]
    boxes = [_box(box, where) for box, where in zip(shape.boxes, placed.boxes, strict=True)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img" font-family="system-ui, sans-serif" font-size="12">',
            f"<title>{_text(shape.name)}</title>",
            '<defs><marker id="penstock-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0 8 4 0 8z" fill="#94a3b8"/></marker></defs>',
            *arrows,
            *boxes,
            "</svg>",
        ]
    )


def _joined(arrows: tuple[Arrow, ...]) -> list[Arrow]:
    """Draw the streams between two operators as one arrow, with the names of all."""
    labels: dict[tuple[int, int], list[str]] = {}
    for arrow in arrows:
        labels.setdefault((arrow.source, arrow.target), []).append(arrow.label)
    return [Arrow(*ends, ", ".join(filter(None, names))) for ends, names in labels.items()]


def _corner(where: tuple[int, float]) -> tuple[float, float]:
    return EDGE + where[0] * (WIDTH + ACROSS), EDGE + where[1] * (HEIGHT + DOWN)


def _box(box: Box, where: tuple[int, float]) -> str:
    x, y = _corner(where)
    fill, border = FILLS[box.kind]
    return (
        f"<g><title>{_text(f'{box.name}: {box.what} ({box.kind})')}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="{border}"/>'
        f'<text x="{x + WIDTH / 2:g}" y="{y + 17:g}" text-anchor="middle" fill="#0f172a">{_short(box.name)}</text>'
        f'<text x="{x + WIDTH / 2:g}" y="{y + 32:g}" text-anchor="middle" fill="#475569" font-size="10">'
        f"{_short(box.what)}</text></g>"
    )


def _arrow(
    arrow: Arrow, source: tuple[int, float], bends: tuple[tuple[int, float], ...], target: tuple[int, float]
) -> str:
    x, y = _corner(source)
    x, y = x + WIDTH, y + HEIGHT / 2
    path = [f"M{x:g} {y:g}"]
    for where in (*bends, target):
        left, top = _corner(where)
        top += HEIGHT / 2
        middle = (x + left) / 2
        path.append(f"C{middle:g} {y:g} {middle:g} {top:g} {left:g} {top:g}")
        x, y = left, top
        if where is not target:
            x += WIDTH
            path.append(f"H{x:g}")
    label = ""
    if arrow.label:
        # At the arrow's tip: where it begins, those of other ports begin too.
        place_ = f'x="{x - 10:g}" y="{y - 6:g}" text-anchor="end"'
        label = f'<text {place_} fill="#64748b" font-size="10">{_short(arrow.label)}</text>'
    return (
        f'<path d="{" ".join(path)}" fill="none" stroke="#94a3b8" stroke-width="1.5" '
        f'marker-end="url(#penstock-tip)"/>{label}'
    )


def _short(text: str) -> str:
    return _text(text if len(text) <= LETTERS else text[: LETTERS - 1] + "…")


def _text(text: str) -> str:
    """Escape a name, and leave out what XML cannot hold."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))
