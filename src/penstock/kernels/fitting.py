"""Give rows their declared type where they leave an operator for one with state, or for a sink.

On Spark rows become columns there, because they go to another process. In one process they must come out the same, but
most rows are already what their columns would give back, and then nothing is converted.
"""

from __future__ import annotations

from penstock.errors import RowTypeError, operator_error
from penstock.kernels.failures import Failure, Failures
from penstock.plan.graph import Node
from penstock.rows.chunk import Chunk


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
    chunk.fits = chunk.fits or chunk.type is None or chunk.rows is None or chunk.type.all_arrive_as_is(chunk.get_rows())
