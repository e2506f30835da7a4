"""Simulate many vehicles at once: the intelligent driver model (Treiber et al., 2000) over arrays.

Roads form a grid that is closed at its edges, so no vehicle ever leaves. At the end of a road a vehicle goes straight
on or turns, by chance that depends on its number alone; it follows the one ahead in its lane, or the last one of the
lane that it is going to enter. One step sorts all vehicles by lane and place, and is a dozen array operations more.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.errors import FlowError
from penstock.lab.workloads.synthetic.draws import uniforms
from penstock.lab.workloads.traffic.trace import LANES, TICK_MS, Floats, Frame, Ints, Load, active

ROAD = 200.0
"""Metres from junction to junction."""
LENGTH, SPACING = 5.0, 30.0
"""Metres of a vehicle, and of lane that there are for each."""
SPEED, HEADWAY, LEAST_GAP = 13.9, 1.5, 2.0
ACCELERATION, COMFORTABLE, HARDEST = 1.5, 2.0, 8.0
EAST_NORTH_WEST_SOUTH = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=np.int64)


class CarFollowing:
    """Vehicles on a grid of roads."""

    def __init__(self, vehicles: int, seed: int = 1, lanes: int = 2) -> None:
        """Put the vehicles on a network that has room for them."""
        if vehicles < 1 or not 1 <= lanes <= LANES:
            raise FlowError(f"vehicles={vehicles}, lanes={lanes}; at least one vehicle, and 1 to {LANES} lanes a road")
        self._side = max(2, int(np.ceil(np.sqrt(vehicles * SPACING / (4 * lanes * ROAD)))))
        self._lanes, self._seed = lanes, seed
        self._id = np.arange(vehicles, dtype=np.int64)
        slots = 4 * self._side**2 * lanes
        # Side by side first: each lane gets as many as the others, evenly spaced.
        self._lane = self._numbered(self._id % slots)
        self._place = np.asarray((self._id // slots + 0.5) * (ROAD / -(-vehicles // slots)), dtype=np.float64)
        self._desired = SPEED * (0.8 + 0.4 * uniforms(self._id, seed, 1))
        self._speed: Floats = 0.5 * self._desired
        self._acceleration = np.zeros(vehicles)
        self._turns = np.zeros(vehicles, dtype=np.int64)
        self._next = self._following(self._id)

    def frame(self, time: int, count: int) -> Frame:
        """Return what the first so many vehicles emit now."""
        road, here = self._lane[:count] // LANES, self._place[:count]
        junction, direction = road // 4, EAST_NORTH_WEST_SOUTH[road % 4]
        return Frame(
            time,
            self._id[:count],
            (junction % self._side) * ROAD + direction[:, 0] * here,
            (junction // self._side) * ROAD + direction[:, 1] * here,
            self._speed[:count].copy(),
            self._acceleration[:count].copy(),
            self._lane[:count].copy(),
        )

    def step(self, seconds: float, count: int) -> None:
        """Move the first so many vehicles; the others stand in their garages."""
        lane, place, speed = self._lane[:count], self._place[:count], self._speed[:count]
        gap, closing = self._ahead(lane, place, speed, self._next[:count])
        wanted = LEAST_GAP + np.maximum(
            0.0, speed * HEADWAY + speed * closing / (2 * np.sqrt(ACCELERATION * COMFORTABLE))
        )
        free = (speed / self._desired[:count]) ** 4
        acceleration = np.clip(ACCELERATION * (1 - free - (wanted / gap) ** 2), -HARDEST, ACCELERATION)
        moved = np.maximum(0.0, speed + acceleration * seconds)
        self._acceleration[:count] = (moved - speed) / seconds
        self._speed[:count] = moved
        self._place[:count] = place + moved * seconds
        through = np.flatnonzero(self._place[:count] >= ROAD)
        self._place[through] -= ROAD
        self._lane[through] = self._next[through]
        self._turns[through] += 1
        self._next[through] = self._following(through)

    def _ahead(self, lane: Ints, place: Floats, speed: Floats, following: Ints) -> tuple[Floats, Floats]:
        """Return for each vehicle how far it is to the one ahead, and how fast it comes nearer."""
        order = np.argsort(lane * ROAD + place, kind="stable")
        sorted_lane = lane[order]
        same = np.flatnonzero(sorted_lane[1:] == sorted_lane[:-1])
        leader = np.full(len(lane), -1, dtype=np.int64)
        leader[order[same]] = order[same + 1]
        # Whoever is first looks at the last one of the lane that it goes to.
        lanes, tails = np.unique(sorted_lane, return_index=True)
        front = np.flatnonzero(leader < 0)
        at = np.searchsorted(lanes, following[front]).clip(max=len(lanes) - 1)
        found = lanes[at] == following[front]
        gap = np.full(len(lane), 10 * ROAD)
        closing = np.zeros(len(lane))
        behind = front[found]
        last = order[tails[at[found]]]
        gap[behind] = ROAD - place[behind] + place[last] - LENGTH
        closing[behind] = speed[behind] - speed[last]
        inside = np.flatnonzero(leader >= 0)
        gap[inside] = place[leader[inside]] - place[inside] - LENGTH
        closing[inside] = speed[inside] - speed[leader[inside]]
        return np.maximum(gap, 0.1), closing

    def _following(self, which: Ints) -> Ints:
        """Return the lanes that these vehicles enter at the end of their roads."""
        road = self._lane[which] // LANES
        junction, direction = road // 4, road % 4
        ahead = EAST_NORTH_WEST_SOUTH[direction]
        column = (junction % self._side + ahead[:, 0]) % self._side
        row = (junction // self._side + ahead[:, 1]) % self._side
        draw = uniforms(which * 1_000_003 + self._turns[which], self._seed, 2) * 3 * self._lanes
        turn = np.array([0, 1, 3])[(draw // self._lanes).astype(np.int64)]  # straight on, left, right
        entered = (row * self._side + column) * 4 + (direction + turn) % 4
        return np.asarray(entered * LANES + (draw % self._lanes).astype(np.int64), dtype=np.int64)

    def _numbered(self, slot: Ints) -> Ints:
        return slot // self._lanes * LANES + slot % self._lanes


def frames(vehicles: int, ticks: int, load: Load = "constant", seed: int = 1) -> Iterator[Frame]:
    """Simulate, and give what the vehicles emit tick by tick."""
    model = CarFollowing(vehicles, seed)
    for tick in range(ticks):
        count = active(load, vehicles, tick, ticks)
        yield model.frame(tick * TICK_MS, count)
        model.step(TICK_MS / 1000, count)
