"""Draw a flow as text: a line an operator, each behind those that it reads."""

from __future__ import annotations

from penstock.drawing.shape import shape_of
from penstock.flow import Flow


def draw_text(flow: Flow) -> str:
    """Return the flow as aligned lines."""
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
