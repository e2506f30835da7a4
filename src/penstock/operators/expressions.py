"""Expressions over the fields of a row: tried on no rows where a flow is built, computed by Arrow on whole columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FlowError
from penstock.operators.expression_functions import Expr
from penstock.operators.stateless import evaluate
from penstock.rows.records import RowType, normalize_schema

EXPRESSIONS = (pc.Expression, Expr)
"""Arrow's, and those that are written as text."""


def is_expression(value: Any) -> bool:
    """Tell an expression from a field's name and a function."""
    return isinstance(value, EXPRESSIONS)


def value_column(rows: pa.RecordBatch | None, expression: pc.Expression) -> pa.Array:
    """Compute an expression, in a type that rows have."""
    assert rows is not None
    found = evaluate(rows, (("value", expression),))
    kind = normalize_schema(found.schema).field(0).type
    column = found.column(0)
    return column if column.type == kind else column.cast(kind)


def bound(value: Any, row: RowType | None, operator: str, what: str) -> tuple[pc.Expression, pa.DataType]:
    """Return an expression as Arrow computes it for rows of a type, and the type of its values; refuse a bad one."""
    if row is None:
        raise FlowError(
            f"operator {operator!r}: {what} needs to know the rows' type; annotate what the function before "
            f"it returns (a dataclass, NamedTuple or TypedDict), or give schema="
        )
    made = value.bound(row, operator) if isinstance(value, Expr) else value
    try:
        return made, evaluate(row.encode([]), (("value", made),)).schema.field(0).type
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise FlowError(
            f"operator {operator!r}: the expression {value} does not fit rows with the fields "
            f"{', '.join(row.names)}: {reason}"
        ) from None


def bound_predicate(value: Any, row: RowType | None, operator: str, what: str) -> pc.Expression:
    """Return an expression as Arrow computes it; refuse one that is neither true nor false."""
    made, kind = bound(value, row, operator, what)
    if not pa.types.is_boolean(kind):
        raise FlowError(
            f"operator {operator!r}: the expression {value} is of type {kind}; {what} needs one that is "
            f"true or false, for example a comparison"
        )
    return made
