"""How rows leave. A writer says where to; engines know nothing else of it.

Rows of a sink are written to files by tasks (`files`), which a commit makes visible (`directory`) or a function takes,
or they come to the driver, in order: to `deliver` before their epoch is committed, so at least once, and to the run's
results (`keeps`) after that, so exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.connectors.directory import Directory


@dataclass(frozen=True)
class Delivery:
    """The rows of an epoch, or of a batch in threads, for one sink; there are some."""

    number: int
    rows: Callable[[], list[Any]]
    frame: Callable[[], Any] = lambda: None
    """The rows as a Spark DataFrame, of a writer that has `files`."""
    title: str | None = None


class Writer:
    """Where rows go. One that is sent to workers must pickle."""

    needs_spark: bool = False
    keeps: bool = False
    """Whether the rows are the run's results."""

    @property
    def files(self) -> Directory | None:
        """How tasks write rows to files; None where rows come to the driver."""
        return None

    @property
    def directory(self) -> Directory | None:
        """Where files appear, exactly once, by the commit of their epoch; None where they do not."""
        return None

    def deliver(self, given: Delivery) -> None:
        """Take rows on the driver; again, with the same number, after a crash."""

    def for_workers(self) -> Writer:
        """Return what workers need of it to write."""
        return self


@dataclass(frozen=True)
class Memory(Writer):
    """Keep the rows; read them as `run.results[name]`."""

    keeps = True


@dataclass(frozen=True)
class Console(Writer):
    """Print rows on the driver, at most `limit` per epoch."""

    limit: int = 20

    def deliver(self, given: Delivery) -> None:
        rows = given.rows()
        if given.title is None:
            for row in rows[: self.limit]:
                print(row)
            return
        print(f"{given.title}: {len(rows)} rows")
        for row in rows[: self.limit]:
            print(f"  {row}")
        if len(rows) > self.limit:
            print(f"  ... {len(rows) - self.limit} more")


@dataclass(frozen=True)
class Callback(Writer):
    """Call a function on the driver with each epoch's rows, in order: `function(rows, epoch)`."""

    function: Callable[[list[Any], int], Any]

    def deliver(self, given: Delivery) -> None:
        self.function(given.rows(), given.number)

    def for_workers(self) -> Writer:
        return replace(self, function=_on_the_driver)


@dataclass(frozen=True)
class FrameCallback(Writer):
    """Call a function with each epoch's rows as a Spark DataFrame: `function(dataframe, epoch)`."""

    function: Callable[[Any, int], Any]
    needs_spark = True

    @property
    def files(self) -> Directory:
        from penstock.connectors.directory import Directory

        return Directory("", "parquet")

    def deliver(self, given: Delivery) -> None:
        self.function(given.frame(), given.number)

    def for_workers(self) -> Writer:
        return replace(self, function=_on_the_driver)


def _on_the_driver(rows: Any, epoch: int) -> None:
    raise AssertionError("callbacks are called on the driver only")
