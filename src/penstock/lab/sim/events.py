"""Keep virtual time: a heap of what happens when."""

import heapq
from collections.abc import Callable
from typing import Any


class Events:
    """Run callbacks in the order of their time; of one time, in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0

    def after(self, delay: float, callback: Callable[[Any], None], argument: Any = None) -> None:
        """Call back with the argument once this much time has passed."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay, self._count, callback, argument))

    def run(self, until: float) -> None:
        """Let everything happen that is due up to a time, and stop there."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, callback, argument = heapq.heappop(heap)
            callback(argument)
        self.now = until

    def every(self, period: float, callback: Callable[[], None]) -> None:
        """Call back once a period, for ever, the first time after one period."""

        def again(_: Any) -> None:
            callback()
            self.after(period, again)

        self.after(period, again)
