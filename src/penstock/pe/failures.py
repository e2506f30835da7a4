"""Collect what user functions raise, so that the error at the smallest position is the one reported."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.checks import DeadLetter
from penstock.errors import PenstockError, operator_error
from penstock.graph import Node
from penstock.rows import Row
from penstock.sequential import row_text


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

    def report(self, node: Node, error: Exception, row: Row, position: tuple[int, ...]) -> DeadLetter | None:
        """Take a failure; return the dead letter to send, if the operator wants one."""
        problem = operator_error(node.name, error, row)
        if node.operator.on_error == "fail":
            self.fatal.append(Failure(node.name, position, problem))
            return None
        self.passed_over[node.name] = self.passed_over.get(node.name, 0) + 1
        if node.operator.on_error == "dead_letter":
            return DeadLetter(node.name, problem.error, problem.where, row_text(row))
        return None
