"""Draw the figures of results as a picture: a panel for each kind of figure, a bar for each."""

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

from bench.results import Figure, Result, ResultError, figures

PANELS = {
    "rows/s": r"_rows_s$|^rows_s$",
    "ratio": r"ratio|^speedup|_manual$",
    "ms": r"_ms$",
    "seconds": r"_s$|(?<!micro)seconds$",
    "MB": r"_mb$",
}
"""What a figure is measured in, by its name; others are settings unless they are asked for."""


def chosen(result: Result, patterns: Sequence[str]) -> dict[str, list[Figure]]:
    """Return the figures to draw, by panel."""
    panels: dict[str, list[Figure]] = {}
    for figure in figures(result):
        if patterns and not any(fnmatch(figure.name, pattern) for pattern in patterns):
            continue
        unit = next((unit for unit, names in PANELS.items() if re.search(names, figure.name)), None)
        measured = figure.low is not None or figure.label or patterns
        if (unit is not None and measured) or patterns:
            panels.setdefault(unit or "value", []).append(figure)
    if not panels:
        raise ResultError(
            f"{result['benchmark']} has no figures to draw"
            + (f" that are called {' or '.join(patterns)}" if patterns else "; name some with --figures 'NAME*'")
        )
    return panels


def draw(results: Sequence[Result], patterns: Sequence[str], output: Path) -> None:
    """Draw results of one benchmark side by side, each with the bars of its own colour."""
    plt = _pyplot()
    names = {result["benchmark"] for result in results}
    if len(names) > 1:
        raise ResultError(f"results of {' and '.join(sorted(names))} do not go in one picture; draw one for each")
    drawn = [chosen(result, patterns) for result in results]
    units = list(dict.fromkeys(unit for panels in drawn for unit in panels))
    rows = {unit: list(dict.fromkeys(f.full_name for panels in drawn for f in panels.get(unit, []))) for unit in units}
    height = sum(0.9 + 0.22 * len(rows[unit]) * len(results) for unit in units)
    shape = {"height_ratios": [len(rows[unit]) + 2 for unit in units]}
    canvas, axes = plt.subplots(len(units), 1, figsize=(10, 1.2 + height), squeeze=False, gridspec_kw=shape)
    for axis, unit in zip(axes[:, 0], units, strict=True):
        for number, (result, panels) in enumerate(zip(results, drawn, strict=True)):
            _bars(axis, rows[unit], panels.get(unit, []), number, len(results), f"{number + 1}: {result['command']}")
        axis.set_yticks(range(len(rows[unit])), rows[unit], fontsize=8)
        axis.invert_yaxis()
        axis.set_xlabel(unit)
    machine = results[0]["machine"]
    title = f"{results[0]['benchmark']}, {machine.get('cores')} cores, Python {machine.get('python')}"
    canvas.suptitle(title, fontsize=10)
    if len(results) > 1:
        canvas.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower center", fontsize=7)
    canvas.tight_layout(rect=(0, 0.03 * len(results) if len(results) > 1 else 0, 1, 1))
    canvas.savefig(output, dpi=120)
    plt.close(canvas)


def _bars(axis: object, names: list[str], found: list[Figure], number: int, of: int, label: str) -> None:
    values = {figure.full_name: figure for figure in found}
    here = [(place, values[name]) for place, name in enumerate(names) if name in values]
    thick = 0.8 / of
    # An interval around the median; one that was measured once has none.
    spread = [
        [f.value - f.low if f.low is not None else 0 for _, f in here],
        [f.high - f.value if f.high is not None else 0 for _, f in here],
    ]
    axis.barh(  # type: ignore[attr-defined]
        [place - 0.4 + thick * (number + 0.5) for place, _ in here],
        [figure.value for _, figure in here],
        thick,
        xerr=spread,
        label=label,
        capsize=2,
    )


def _pyplot() -> ModuleType:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ResultError("plots need matplotlib: pip install 'penstock[bench]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
