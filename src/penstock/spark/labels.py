"""Name jobs and stages so that Spark's own page can be read: the flow, the epoch, and the operators of each stage."""

from __future__ import annotations

from penstock.spark.stages import Stages

STAGE = "callSite.short"
"""The property of a thread that names what Spark makes next; otherwise a stage is called after a line of ours."""
LETTERS = 120


def stage_labels(stages: Stages) -> list[str]:
    """Return what to call the stage of each level: the operators that run in it, in order."""
    names: list[list[str]] = [[] for _ in range(stages.last + 1)]
    for name, level in stages.levels.items():
        names[level].append(name)
    return [_shortened(operators) for operators in names]


def solo_label(labels: list[str]) -> str:
    """Return what to call the one stage of an epoch that runs in one task."""
    return _cut(" | ".join(labels))


def job_label(flow: str, epoch: int, labels: list[str]) -> str:
    """Return what to call the job of an epoch."""
    return f"{flow}: epoch {epoch} ({_cut(' | '.join(labels))})"


def _shortened(operators: list[str]) -> str:
    """Name as many operators as there is room for, and count the others."""
    shown = list(operators)
    while len(", ".join(shown)) > LETTERS - 12 and len(shown) > 1:
        shown.pop()
    left = len(operators) - len(shown)
    return _cut(", ".join(shown)) + (f" and {left} more" if left else "")


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
