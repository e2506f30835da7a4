"""What workers share is found, and is counted by none of them where the interpreter can do without."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.threads.uncounted import leave_uncounted, made_by, shared_by

CAN_BE_TOLD = bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info[:2] == (3, 14)


class Point(NamedTuple):
    x: int


class Scale:
    """An object that is called."""

    @property
    def factor(self) -> int:
        return helper(2)

    def __call__(self, row: Point) -> Point:
        return Point(row.x * self.factor)


def helper(n: int) -> int:
    return abs(n)


def test_what_a_function_names_and_captures() -> None:
    weights = [1, 2]

    def inner(row: Point) -> Point:
        def total() -> int:
            return sum(weights)

        return Point(helper(row.x) + total())

    found = list(shared_by([inner]))
    for thing in (inner, weights, helper, abs, sum, Point, vars(Point)["x"], vars(Point)["__new__"].__func__):
        assert any(each is thing for each in found), thing
    assert inner.__closure__ is not None
    assert any(each is inner.__closure__[0] for each in found)
    assert len({id(each) for each in found}) == len(found)


class Absent:
    """Stands for what is not there yet, and says so whatever it is asked for."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("there is no request")


@dataclass
class Lazy:
    """Opens something when it is read."""

    opened: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "opened":
            raise ValueError("not connected")
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("kind", [Absent, Lazy])
def test_what_cannot_be_looked_into_is_no_failure(kind: type) -> None:
    thing = kind()
    found = list(shared_by([lambda row: (thing, row)]))
    assert any(each is thing for each in found)
    assert any(each is kind for each in made_by(found))


@pytest.mark.parametrize("function", [Scale(), partial(Scale(), Point(1)), Scale().__call__])
def test_what_is_called_of_an_object(function: Callable[..., Any]) -> None:
    found = list(shared_by([function]))
    for thing in (Scale, vars(Scale)["factor"], helper, vars(Point)["x"]):
        assert any(each is thing for each in found), thing


def test_what_an_object_is_made_by() -> None:
    found = list(made_by([Point, helper]))
    for thing in (Point, vars(Point)["__new__"], vars(Point)["__new__"].__func__, vars(type)["__new__"]):
        assert any(each is thing for each in found), thing
    assert helper not in found


@pytest.mark.skipif(not CAN_BE_TOLD, reason="this Python cannot be told")
def test_a_class_that_rows_are_made_of_is_not_counted_at_all() -> None:
    class Row(NamedTuple):
        x: int

    flow = ps.Flow("f")
    flow.source("in", ps.read.items([Row(1)], schema=Row)).map(lambda row: Row(row.x)).sink("out")
    before = sys.getrefcount(Row)
    leave_uncounted(make_plan(flow))
    held = [Row] * 1000
    assert sys.getrefcount(Row) == sys.getrefcount(type)
    assert sys.getrefcount(Row) != before + len(held)


def test_a_flow_is_told_of_once() -> None:
    flow = ps.Flow("f")
    shift = 3
    source = flow.source("in", ps.read.items([Point(1)], schema=Point))
    source.map(lambda row: Point(row.x + shift)).key_by("x").scan(lambda state, row: (state, row), 0).sink("out")
    plan = make_plan(flow)
    first = leave_uncounted(plan)
    assert (first > 0) == CAN_BE_TOLD
    assert leave_uncounted(plan) == 0
