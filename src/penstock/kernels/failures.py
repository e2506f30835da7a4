"""Rows that fail, or do not fit their type: of all errors, the one at the smallest position is reported.

Rows are given their declared type where they leave an operator for one with state, or for a sink. On Spark rows become
columns there, because they go to another process. In one process they must come out the same, but most rows are already
what their columns would give back, and then nothing is converted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.errors import PenstockError, RowTypeError, SetupError, operator_error, row_text
from penstock.flow.checks import DeadLetter
from penstock.operators.calling import Tally
from penstock.plan.graph import Node
from penstock.plan.plan import Plan
from penstock.plan.positions import Layout
from penstock.rows.chunk import Chunk
from penstock.rows.records import Row


@dataclass(frozen=True)
class Failure:
    """A row that an operator failed on, under `on_error="fail"`."""

    operator: str
    position: tuple[int, ...]
    error: PenstockError


@dataclass
class Failures:
    """What failed in one process: failures that stop the flow, and counts of rows that were passed over."""

    fatal: list[Failure] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)
    retried: dict[str, int] = field(default_factory=dict)
    """Attempts of calls after the first, by operator."""
    timed_out: dict[str, int] = field(default_factory=dict)
    """Attempts that took too long."""
    forgotten: dict[str, int] = field(default_factory=dict)
    """Keys whose time to live was over."""

    def absorb(self, other: Failures) -> None:
        self.fatal += other.fatal
        for mine, theirs in zip(self.counts, other.counts, strict=True):
            for name, rows in theirs.items():
                mine[name] = mine.get(name, 0) + rows

    @property
    def counts(self) -> tuple[dict[str, int], ...]:
        """Return what is counted by operator: rows passed over, attempts after the first, late ones, keys forgotten."""
        return self.passed_over, self.retried, self.timed_out, self.forgotten

    def tally(self, node: Node, tally: Tally) -> None:
        """Take what the calls of an operator took."""
        _count(self.retried, node, tally.retries)
        _count(self.timed_out, node, tally.timeouts)

    def forget(self, node: Node, keys: int) -> None:
        """Take how many keys an operator has forgotten."""
        _count(self.forgotten, node, keys)

    def report(self, node: Node, error: Exception, row: Row, position: tuple[int, ...]) -> DeadLetter | None:
        """Take a failure; return the dead letter to send, if the operator wants one."""
        problem = operator_error(node.name, error, row)
        if node.operator.on_error == "fail" or isinstance(error, SetupError):
            self.fatal.append(Failure(node.name, position, problem))
            return None
        _count(self.passed_over, node, 1)
        if node.operator.on_error == "dead_letter":
            return DeadLetter(node.name, problem.error, problem.where, row_text(row), problem.attempts)
        return None


def _count(counts: dict[str, int], node: Node, more: int) -> None:
    if more:
        counts[node.name] = counts.get(node.name, 0) + more


def first_failure(plan: Plan, failures: list[Failure]) -> Failure:
    """Return the failure that a one-row-at-a-time run would have met first."""
    order = {name: number for number, name in enumerate(plan.nodes)}

    def place(failure: Failure) -> tuple[Any, ...]:
        # What failed outside of any operator (a file, a state file) says more than what it made fail.
        return (failure.operator != "", *full_position(plan, failure), order.get(failure.operator, -1))

    return min(failures, key=place)


def full_position(plan: Plan, failure: Failure) -> tuple[int, ...]:
    """Put the edges of fan-outs that never meet again back into a position: they too say what comes first."""
    layout: Layout = plan.layout
    if failure.operator not in plan.nodes:
        return failure.position
    path: list[int] = []
    name = failure.operator
    inserts: list[tuple[int, int]] = []
    while plan.nodes[name].inputs:
        edges = [edge for edge in plan.graph.edges if edge.target == name]
        if len(edges) > 1:
            break  # above a fan-in the edges are in the position already, or lead to one place
        edge = edges[0]
        above = edge.source.node
        if len(plan.graph.outgoing[above]) > 1 and above not in layout.fanouts:
            inserts.append((layout.shapes[above].out_width, edge.index))
        name = above
    path = list(failure.position)
    for place, index in sorted(inserts, reverse=True):
        path.insert(min(place, len(path)), index)
    return tuple(path)


def in_columns(node: Node, chunk: Chunk, failures: Failures) -> Chunk:
    """Return the rows as columns; report the first value that does not fit, and keep what is before it."""
    if chunk.type is None:
        return chunk
    try:
        return chunk.only_columns()
    except RowTypeError as error:
        problem = operator_error(node.name, error, chunk.get_rows()[error.index])
        failures.fatal.append(Failure(node.name, chunk.position(error.index), problem))
        return in_columns(node, chunk.slice(0, error.index), failures) if error.index else chunk.slice(0, 0)


def fitted(node: Node, chunk: Chunk, failures: Failures) -> Chunk:
    """Return the rows as they would come out of columns; the same where nothing would change."""
    note_fit(chunk)
    return chunk if chunk.fits else in_columns(node, chunk, failures)


def note_fit(chunk: Chunk) -> None:
    """Look whether rows fit as they are, and note it: best done by the worker that has just made them."""
    chunk.fits = chunk.fits or chunk.type is None or chunk.rows is None or chunk.arrives_as_is()
