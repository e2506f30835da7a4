"""Place the boxes of a graph in layers, from left to right, so that few arrows cross.

The method of Sugiyama: a box stands one layer behind the last one that it reads; an arrow over several layers takes a
place of its own in each; the places of a layer are put in the order of the means of their neighbours, back and forth a
few times; then each moves towards its neighbours as far as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SWEEPS = 8


@dataclass(frozen=True)
class Placed:
    """Where everything stands: layers and heights, in units of a place."""

    boxes: tuple[tuple[int, float], ...]
    """Layer and height of each box."""
    bends: tuple[tuple[tuple[int, float], ...], ...]
    """For each arrow, the places that it passes between its ends."""
    layers: int
    height: float


def place(boxes: int, arrows: Sequence[tuple[int, int]]) -> Placed:
    """Place so many boxes, each numbered behind those with arrows to it."""
    layer = [0] * boxes
    for source, target in sorted(arrows, key=lambda arrow: arrow[1]):
        layer[target] = max(layer[target], layer[source] + 1)
    layer_of = list(layer)
    links: list[tuple[int, int]] = []
    chains: list[list[int]] = []
    for source, target in arrows:
        chain = []
        before = source
        for between in range(layer[source] + 1, layer[target]):
            layer_of.append(between)
            chain.append(len(layer_of) - 1)
            links.append((before, chain[-1]))
            before = chain[-1]
        links.append((before, target))
        chains.append(chain)
    heights = _heights(layer_of, links)
    low = min(heights, default=0.0)
    heights = [height - low for height in heights]
    return Placed(
        tuple((layer_of[box], heights[box]) for box in range(boxes)),
        tuple(tuple((layer_of[item], heights[item]) for item in chain) for chain in chains),
        max(layer_of, default=-1) + 1,
        max(heights, default=-1.0) + 1,
    )


def _heights(layer_of: Sequence[int], links: Sequence[tuple[int, int]]) -> list[float]:
    count = max(layer_of, default=-1) + 1
    layers: list[list[int]] = [[] for _ in range(count)]
    for item, layer in enumerate(layer_of):
        layers[layer].append(item)
    above: list[list[int]] = [[] for _ in layer_of]
    below: list[list[int]] = [[] for _ in layer_of]
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    rank = [0.0] * len(layer_of)
    for items in layers:
        for place_, item in enumerate(items):
            rank[item] = place_
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = above if forward else below
        for number in range(count) if forward else reversed(range(count)):
            means = {item: _mean([rank[other] for other in near[item]], rank[item]) for item in layers[number]}
            layers[number].sort(key=means.__getitem__)
            for place_, item in enumerate(layers[number]):
                rank[item] = place_
    height = list(rank)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = above if forward else below
        for number in range(count) if forward else reversed(range(count)):
            _settle(layers[number], near, height)
    return height


def _settle(layer: Sequence[int], near: Sequence[Sequence[int]], height: list[float]) -> None:
    """Move the places of a layer towards their neighbours, one apart at least, their order kept."""
    wanted = [_mean([height[other] for other in near[item]], height[item]) for item in layer]
    # Groups that want to overlap stand together at the mean of what they want.
    groups: list[tuple[float, int]] = []
    for want in wanted:
        start, size = want, 1
        while groups and groups[-1][0] + groups[-1][1] > start:
            before, many = groups.pop()
            start = (before * many + (start - many) * size) / (many + size)
            size += many
        groups.append((start, size))
    places = [start + i for start, size in groups for i in range(size)]
    for item, where in zip(layer, places, strict=True):
        height[item] = where


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
