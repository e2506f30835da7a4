"""Draw a flow as SVG."""

from __future__ import annotations

from html import escape

from penstock.drawing.layers import place
from penstock.drawing.shape import Arrow, Box, shape_of
from penstock.flow import Flow

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
