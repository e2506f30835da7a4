"""Rows whose classes users declare, as a type checker must take them. Read by test_types.py, never run."""

import datetime as dt
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, assert_type

import penstock as ps


@dataclass
class Payment:
    at: dt.datetime
    user: str
    amount: float


class Total(NamedTuple):
    user: str
    total: float


class Note(TypedDict):
    text: str


def running(total: float, row: Payment) -> tuple[float, Total]:
    return total + row.amount, Total(row.user, total + row.amount)


def as_fields(total: float, row: Payment) -> tuple[float, dict[str, Any]]:
    return total, {"user": row.user, "total": total}


def latest(seen: list[float], row: Payment) -> tuple[list[float], Iterator[Total]]:
    return [*seen, row.amount], (Total(row.user, each) for each in seen)


async def look_up(row: Payment) -> Total:
    return Total(row.user, 0.0)


async def expand(row: Payment) -> AsyncIterator[Total]:
    yield Total(row.user, 0.0)


def with_client(row: Payment, client: dict[str, float]) -> Total:
    return Total(row.user, client[row.user])


def many_with_client(row: Payment, client: dict[str, float]) -> list[Total]:
    return [Total(row.user, client[row.user])]


def note(row: Payment) -> Note:
    return {"text": row.user}


flow = ps.Flow("typed")
payments = flow.source("payments", ps.read.json("in", schema=Payment), time="at", slack="1 min", on_late="divert")
assert_type(payments, ps.Stream[Payment])
assert_type(flow.source("again", [Payment(dt.datetime.now(), "ann", 1.0)]), ps.Stream[Payment])
assert_type(flow.source("items", ps.read.items([Total("ann", 1.0)])), ps.Stream[Total])
assert_type(flow.source("dicts", ps.read.items([{"user": "ann"}])), ps.Stream[Any])
assert_type(flow.source("listed", [1, 2, 3]), ps.Stream[int])

assert_type(payments.map(lambda row: row.user), ps.Stream[str])
assert_type(payments.map(lambda row: Total(row.user, row.amount)), ps.Stream[Total])
assert_type(payments.map(lambda row: {"user": row.user}, schema=Total), ps.Stream[Total])
assert_type(payments.map(lambda row: {"user": row.user}, schema={"user": str}), ps.Stream[Any])
payments.map(lambda row: {"user": row.user}, schema={"user": str}).filter(lambda row: row.user > "b")
payments.map(note).map(lambda row: row["text"])
payments.map(look_up, in_flight=8).map(lambda row: row.total)
payments.flat_map(expand).map(lambda row: row.total)
assert_type(payments.flat_map(lambda row: [row.user, row.user]), ps.Stream[str])
assert_type(payments.filter(lambda row: row.amount > 3), ps.Stream[Payment])
assert_type(payments.map(with_client, setup=dict), ps.Stream[Total])
assert_type(payments.flat_map(many_with_client, setup=dict), ps.Stream[Total])
small, rest = payments.split(lambda row: row.amount < 1)
assert_type(rest, ps.Stream[Payment])
assert_type(payments.distinct("user").sort(), ps.Stream[Payment])

keyed = payments.key_by("user")
assert_type(keyed, ps.KeyedStream[Payment])
assert_type(payments.key_by(lambda row: row.user[:1]), ps.KeyedStream[Payment])
assert_type(keyed.scan(running, 0.0), ps.Stream[Total])
assert_type(keyed.scan(running, 0), ps.Stream[Total])
assert_type(keyed.scan(running, float), ps.Stream[Total])
assert_type(keyed.scan(lambda total, row: (total + row.amount, row.user), 0.0), ps.Stream[str])
keyed.scan(as_fields, 0.0, schema={"user": str, "total": float}).filter(lambda row: row.total > 3)
assert_type(keyed.flat_scan(latest, list), ps.Stream[Total])
assert_type(keyed.flat_scan(latest, []), ps.Stream[Total])
assert_type(keyed.reduce(lambda a, b: b), ps.Stream[Payment])
assert_type(keyed.window("10 min").apply(lambda window, rows: Total(window.key, rows[0].amount)), ps.Stream[Total])
keyed.aggregate(n=ps.agg.count()).map(lambda row: row.n)
keyed.join(keyed, within="1 min", combine=lambda left, right: (left.user, right.amount))
assert_type(payments.union(rest), ps.Stream[Payment])


def both(left: Payment | None, right: Payment | None) -> Total:
    return Total("", 0.0)


keyed.join(keyed, "1 min", both, how="outer")


def large(stream: ps.Stream[Payment]) -> ps.Stream[Payment]:
    return stream.filter(lambda row: row.amount > 100)


def any_rows(stream: ps.Stream) -> ps.Stream:
    return stream.map(lambda row: row.anything)


(payments >> large).key_by("user").scan(running, 0.0)
any_rows(payments).filter(lambda row: row.more)
