"""Work out, for one operator, when its watermark rises: the lowest of all routes that marks take to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.plan.positions import MarkRoute
from penstock.rows.chunk import Ints, sorting_order
from penstock.rows.timing import BEFORE, FOREVER, Ticks


@dataclass(frozen=True)
class Steps:
    """The rises of a watermark, in order: where, and to what."""

    positions: list[Ints]
    values: Ints

    def __len__(self) -> int:
        return len(self.values)

    def before(self, bound: int | None) -> tuple[Steps, Steps]:
        """Divide at a bound of the first component."""
        cut = len(self) if bound is None else int(np.searchsorted(self.positions[0], bound, "left"))
        return (
            Steps([p[:cut] for p in self.positions], self.values[:cut]),
            Steps([p[cut:] for p in self.positions], self.values[cut:]),
        )


def rises(times: Ints, start: Ticks) -> Ints:
    """Return the numbers of the rows whose time is later than all before them and than `start`."""
    if len(times) == 0:
        return np.empty(0, np.int64)
    if times[0] > start and (times[1:] > times[:-1]).all():
        return np.arange(len(times))
    highest = np.maximum.accumulate(times)
    before = np.concatenate([[start], np.maximum(highest[:-1], start)])
    return np.flatnonzero(times > before)


def crossing(values: Ints, start: Ticks, grids: Sequence[tuple[Ticks, Ticks, Ticks]]) -> Ints:
    """Return which rising marks cross an edge of some grid (period, offset, delay): the others change nothing."""
    keep = np.zeros(len(values), bool)
    for period, offset, delay in grids:
        cells = (values - delay - offset) // period
        first = (start - delay - offset) // period
        keep |= cells > np.concatenate([[first], cells[:-1]])
    return np.flatnonzero(keep)


def lowest(
    steps: Mapping[Any, Steps], start: Mapping[Any, Ticks], water: Ticks, before: tuple[int, ...]
) -> Steps | None:
    """Merge the marks of a source's parts: its watermark is the lowest of theirs, and never goes back.

    `start` has the watermark of each part that counts; one that has steps counts anyway. `water` is the source's own
    before all of them, and `before` the position where it rises at once if a part that held it back has gone.
    """
    counting = {**dict.fromkeys(steps, BEFORE), **start}
    if not counting:
        return None
    now = max(water, min(counting.values()))
    first = [Steps([np.array([component], np.int64) for component in before], np.array([now], np.int64))]
    given = [(part, rising) for part, rising in steps.items() if len(rising)]
    if given:
        columns = [np.concatenate(parts) for parts in zip(*(rising.positions for _, rising in given), strict=True)]
        order = np.lexsort(tuple(reversed(columns)))
        value = np.concatenate([rising.values for _, rising in given])[order]
        number = np.concatenate([np.full(len(rising), i) for i, (_, rising) in enumerate(given)])[order]
        low = np.full(len(value), min((counting[p] for p in counting if p not in steps), default=FOREVER), np.int64)
        for i, (part, _) in enumerate(given):
            mine = np.maximum(np.where(number == i, value, BEFORE), counting[part])
            low = np.minimum(low, np.maximum.accumulate(mine))
        keep = rises(low, now)
        first.append(Steps([column[order][keep] for column in columns], low[keep]))
    return joined(first if now > water else first[1:])


def joined(steps: Sequence[Steps]) -> Steps | None:
    """Put marks after one another; None for none."""
    if len(steps) < 2:
        return steps[0] if steps else None
    columns = zip(*(each.positions for each in steps), strict=True)
    return Steps([np.concatenate(parts) for parts in columns], np.concatenate([each.values for each in steps]))


def arrival(
    routes: Sequence[MarkRoute],
    steps: dict[str, Steps],
    start: dict[str, Ticks],
    width: int,
    grid: tuple[Ticks, Ticks] | None = None,
) -> Steps:
    """Merge the marks of all sources as they arrive at one operator; keep the steps that raise its watermark.

    With a grid (`Logic.mark_grid`), those that cross none of its edges may be left out.
    """
    # What is left at the end of a source has the time of the mark just before, whichever that is.
    if grid is not None and not any(len(each) and each.values[-1] == FOREVER for each in steps.values()):
        steps = dict(steps)
        for source in {route.source for route in routes} & steps.keys():
            grids = [(*grid, route.delay) for route in routes if route.source == source]
            keep = crossing(steps[source].values, start[source], grids)
            steps[source] = Steps([p[keep] for p in steps[source].positions], steps[source].values[keep])
    positions: list[list[Ints]] = [[] for _ in range(width)]
    values, route_of = [], []
    for number, route in enumerate(routes):
        arriving = steps.get(route.source)
        if arriving is None or len(arriving) == 0:
            continue
        for i, component in enumerate(arriving.positions):
            positions[i].append(component)
        for i, constant in enumerate(route.path):
            positions[len(arriving.positions) + i].append(np.full(len(arriving), constant, np.int64))
        values.append(np.where(arriving.values == FOREVER, FOREVER, arriving.values - route.delay))
        route_of.append(np.full(len(arriving), number, np.int64))
    if not values:
        return Steps([np.empty(0, np.int64) for _ in range(width)], np.empty(0, np.int64))
    columns = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in positions]
    order = sorting_order(columns)  # tasks tell of theirs in any order
    if order is None and len(routes) == 1 and len(rises(values[0], watermark(routes, start))) == len(values[0]):
        return Steps(columns, values[0])
    order = np.arange(len(columns[0])) if order is None else order
    columns = [column[order] for column in columns]
    value, number_of = np.concatenate(values)[order], np.concatenate(route_of)[order]
    lowest = None
    for number, route in enumerate(routes):
        first = _delayed(start[route.source], route.delay)
        mine = np.maximum.accumulate(np.maximum(np.where(number_of == number, value, first), first))
        lowest = mine if lowest is None else np.minimum(lowest, mine)
    assert lowest is not None
    keep = rises(lowest, watermark(routes, start))
    return Steps([column[keep] for column in columns], lowest[keep])


def closings(
    ports: Sequence[Sequence[MarkRoute]], steps: dict[str, Steps], start: dict[str, Ticks], width: int
) -> Steps:
    """Return where ports close before the last of them does: each after the last end of the sources above it."""
    closed: list[tuple[tuple[int, ...], int]] = []
    still_open = False
    for port, routes in enumerate(ports):
        ends = [_end(route, steps, start) for route in routes]
        still_open = still_open or None in ends
        places = [end for end in ends if end]
        if places and None not in ends:
            closed.append((max(places), port))
    closed.sort()
    last = None if still_open or not closed else closed[-1][0]
    kept = [(place, port) for place, port in closed if place != last]
    columns = zip(*(place for place, _ in kept), strict=True) if kept else [()] * width
    return Steps([np.array(column, np.int64) for column in columns], np.array([port for _, port in kept], np.int64))


def closed_ports(ports: Sequence[Sequence[MarkRoute]], marks: dict[str, Ticks]) -> frozenset[int]:
    """Return the ports above which all sources have ended."""
    return frozenset(
        port for port, routes in enumerate(ports) if all(marks[route.source] == FOREVER for route in routes)
    )


def _end(route: MarkRoute, steps: dict[str, Steps], start: dict[str, Ticks]) -> tuple[int, ...] | None:
    """Return where the end of a source arrives; () if that was before, None if it has not ended."""
    if start[route.source] == FOREVER:
        return ()
    ending = steps.get(route.source)
    if ending is None:
        return None
    at = np.flatnonzero(ending.values == FOREVER)
    return (*(int(p[at[0]]) for p in ending.positions), *route.path) if len(at) else None


def watermark(routes: Sequence[MarkRoute], marks: dict[str, Ticks]) -> Ticks:
    return min(_delayed(marks[route.source], route.delay) for route in routes)


def _delayed(mark: Ticks, delay: Ticks) -> Ticks:
    return mark if mark in (FOREVER, BEFORE) else mark - delay
