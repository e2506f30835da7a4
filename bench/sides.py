"""Say what a side of a comparison is."""

from typing import Protocol

Epoch = tuple[int, float]
"""Rows of an epoch, and the seconds that it took."""


class Side(Protocol):
    """One system under measurement, kept warm between its turns."""

    def start(self) -> None:
        """Set up whatever the side needs; nothing is measured yet."""

    def run_epochs(self, n: int) -> list[Epoch]:
        """Process the next `n` epochs of the input and return what each took."""

    def stop(self) -> None:
        """End everything that the side started; harmless if that is nothing, or when called again."""
