"""Sources of several parts, which are asked for rows one by one where `order_by` puts all of them in one order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from penstock.connectors.feeds import Feed, Slice


class PartedFeed(ABC):
    """A source of several parts; it is a feed, too."""

    @abstractmethod
    def parts(self) -> Mapping[int, Feed]:
        """Return the parts that are known by now, in their order."""

    @abstractmethod
    def whole(self, slices: Mapping[int, Slice]) -> Slice:
        """Return what an epoch takes of the source, given what it takes of its parts."""

    def part_name(self, part: int) -> str:
        """Return what people call a part."""
        return f"part {part}"


def parts_of(feed: Feed) -> Mapping[int, Feed]:
    """Return the parts of any source; most are one."""
    return feed.parts() if isinstance(feed, PartedFeed) else {0: feed}
