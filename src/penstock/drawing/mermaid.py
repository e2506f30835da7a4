"""Draw a flow as Mermaid, which Markdown on many sites shows as a picture."""

from __future__ import annotations

from penstock.drawing.shape import Box, shape_of
from penstock.flow import Flow

BRACKETS = {
    "source": ("([", "])"),
    "stateless": ("[", "]"),
    "partitioned": ("[[", "]]"),
    "stateful": ("[[", "]]"),
    "sink": ("[(", ")]"),
}


def draw_mermaid(flow: Flow) -> str:
    """Return the flow as a Mermaid flowchart."""
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
