"""Make the input sequence of an epoch: the rows of all sources in one order, as every engine sees them."""

from __future__ import annotations

from typing import Any

from penstock.ingress.feeds import Slice
from penstock.ingress.splits import read_split
from penstock.operators.base import Source
from penstock.plan import Plan
from penstock.rows import any_getter
from penstock.sequential import SequentialEngine


def epoch_sequence(plan: Plan, slices: dict[str, Slice], engine: SequentialEngine, floor: Any) -> Any:
    """Feed one epoch to the reference engine; return the highest order_by so far."""
    rows: list[tuple[Any, ...]] = []
    for number, node in enumerate(plan.sources):
        source = node.operator
        assert isinstance(source, Source)
        if node.name not in slices:
            continue
        place = 0
        for split in slices[node.name].splits:
            for piece in read_split(source.reader, node.types[0], split, node.name):
                if piece.rows is not None:
                    found = piece.rows
                else:
                    assert node.types[0] is not None
                    found = node.types[0].decode(piece.columns)
                for row in found:
                    order = tuple(_null_first(any_getter([field])(row)) for field in source.order_by)
                    rows.append((order, number, place, node.name, row))
                    place += 1
    rows.sort(key=lambda item: item[:3])
    highest = floor
    for order, _, _, name, row in rows:
        if floor is not None and order < floor:
            engine.late(name, row)
            continue
        engine.row(name, row)
        if order:
            highest = order if highest is None else max(highest, order)
    return highest


def _null_first(value: Any) -> tuple[bool, Any]:
    """Order null before everything else, as the Spark engine does."""
    return (value is not None, value if value is not None else 0)
