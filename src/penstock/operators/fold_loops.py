"""The loop that takes rows into the state of their keys, put together for what happens to each output.

Whatever is looked at for a row costs every row. So what a function returns first tells what is expected of the others,
and a loop has the one way of that, and another for what is not as expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from functools import lru_cache
from itertools import islice
from textwrap import indent
from typing import Any

from penstock.rows.chunk import FlatRows
from penstock.rows.records import Row, RowType
from penstock.rows.values import is_fixed, snapshot

Pairs = Iterator[tuple[Any, Row]]
"""Rows with their keys."""
Loop = Callable[..., None]

AS_IT_IS = ""
"""Nothing is looked at, and nothing can fail: the loop for this keeps the state at once."""
EACH = "put(other(output))"
SNAPSHOT = "put(output if is_fixed(state) else other(output))"
UNCHANGEABLE = "put(output if type(output) is expected and is_fixed(state) else other(output))"
EXPECTED = "put(output if type(output) is expected else other(output))"
COUNTED = "put(output if type(output) is expected and len(output) == width else other(output))"
READ = "put(VALUES if type(output) is expected else other(output))"
READ_COUNTED = "put(VALUES if type(output) is expected and len(output) == width else other(output))"
UNTIL_ANOTHER = """\
if type(output) is not expected:
    other(output)
    states[key] = state
    return
put(output)"""


def no_pair(result: Any, second: str) -> TypeError:
    return TypeError(f"the function must return (state, {second}), and returned {result!r} ({type(result).__name__})")


@lru_cache
def make_fold(take: str, put: str = "append", values: str = "") -> Loop:
    """Make the loop that takes outputs in one of the ways above; what fails does so before the state changes.

    They are put in a list by its method of a name, and their `values` are read by name: what Python does fastest.
    """
    checked = f"""\
        try:
{indent(take.replace("put(", f"out.{put}(").replace("VALUES", values), " " * 12)}
        except KeyError:
            out.{put}(other(output))  # says which field is missing
        states[key] = state
"""
    source = f"""
def fold(pairs, states, out, function, initial, other=None, expected=None, width=0):
    get = states.get
    for key, row in pairs:
        state = get(key)
        if state is None:
            state = initial()
        result = function(state, row)
        try:
            {"state" if take else "states[key]"}, output = result
        except (TypeError, ValueError):
            raise no_pair(result, "output") from None
{checked if take else f"        out.{put}(output)"}
"""
    made: dict[str, Any] = {"no_pair": no_pair, "is_fixed": is_fixed}
    # By the name that this file has in tracebacks, so that errors leave it out as they do this file.
    exec(compile(source, no_pair.__code__.co_filename, "exec"), made)
    loop: Loop = made["fold"]
    return loop


def fold_outputs(
    function: Callable[[Any, Row], tuple[Any, Row]],
    initial: Callable[[], Any],
    returns: RowType | None,
    pairs: Pairs,
    states: MutableMapping[Any, Any],
    out: list[Row],
    careful: bool,
) -> None:
    """Call a function for each row, keep the states of keys, and put the outputs in a list.

    Where outputs are declared to be records, their values are enough: for a dict or a dataclass a bare tuple stands for
    the record, read at once, since the function may have it as its state, too, and change it with the next row. With
    `careful`, and where only the values are kept, the lengths of bare tuples are looked at here.
    """
    flat = out if isinstance(out, FlatRows) and out.width else None
    put = "append" if flat is None else "extend"
    if returns is None:
        make_fold(SNAPSHOT)(pairs, states, out, function, initial, snapshot)
    elif returns.form in ("scalar", "tuple") and not returns.has_changeable:
        if flat is not None:  # the loop ends where a row is no such tuple, and there are rows from then on
            make_fold(UNTIL_ANOTHER, put)(pairs, states, out, function, initial, flat.add_row, returns.row_class)
        make_fold(AS_IT_IS)(pairs, states, out, function, initial)
    else:
        first = _First(returns)
        make_fold(EACH, put)(islice(pairs, 1), states, out, function, initial, first)
        if flat is not None and not flat.for_columns and returns.is_record(first.cls):
            flat.to_rows()  # they are rows already
            flat, put = None, "append"
        take, values = _expected(returns, first.cls, careful or flat is not None)
        width = len(returns.schema)
        make_fold(take, put, values)(pairs, states, out, function, initial, returns.detach, first.cls, width)


class _First:
    """Detach an output, and remember what it was."""

    def __init__(self, returns: RowType) -> None:
        self.cls: type | None = None
        self._detach = returns.detach

    def __call__(self, output: Row) -> Row:
        self.cls = type(output)
        return self._detach(output)


def _expected(returns: RowType, cls: type | None, careful: bool) -> tuple[str, str]:
    """Tell how to take outputs of a class, and what reads their values."""
    if cls is None or returns.has_changeable:
        return EACH, ""
    if returns.form != "record":
        return UNCHANGEABLE, ""  # the user's dict or dataclass
    if returns.is_values(cls):
        return COUNTED if careful and cls is tuple else EXPECTED, ""
    if returns.reader(cls) is None:
        return EACH, ""
    values = ", ".join(f"output[{name!r}]" if cls is dict else f"output.{name}" for name in returns.names)
    return READ_COUNTED if cls is dict else READ, f"({values})"
