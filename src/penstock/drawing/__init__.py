"""Draw a flow: as SVG (for notebooks and files), as Mermaid (for Markdown), as text.

`shape` says what there is to draw, `layers` where things stand, `svg`, `mermaid` and `text` write it down.
"""

from penstock.drawing.mermaid import draw_mermaid
from penstock.drawing.svg import draw_svg
from penstock.drawing.text import draw_text

__all__ = ["draw_mermaid", "draw_svg", "draw_text"]
