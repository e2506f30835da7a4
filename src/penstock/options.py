"""What a run may be told, each option once: a field whose annotation has its type, what it may be and what it does.

`Spark`, `Threads` and `Sequential` say where a flow runs, `Options` what all of them take. Refusals, the flags of
`penstock run` and the tables of `docs/options.md` are made from these fields (`annotated.py` reads them).
"""

import datetime as dt
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

from penstock.annotated import About, Count, Port, Seconds, Time, checked_fields, options_of
from penstock.elastic.base import Controller
from penstock.elastic.rebinding import Binding
from penstock.elastic.thread_level import ThreadStatistics
from penstock.errors import FlowError, did_you_mean
from penstock.order.reorder import MakeReorder
from penstock.plan.plan import Plan
from penstock.rows.timing import seconds
from penstock.statistics import FlowStats
from penstock.threads.models.base import ModelName
from penstock.threads.policies import POLICIES, Policy
from penstock.threads.stations import Partitioned

if TYPE_CHECKING:
    from penstock.run import Engine


class On(ABC):
    """Where a flow runs: what one engine takes, and how it is opened."""

    name: ClassVar[str]
    lacks: ClassVar[frozenset[str]] = frozenset()
    """The options of `Options` that this engine cannot take."""

    @abstractmethod
    def open(self, plan: Plan, options: "Options", listener: Callable[[FlowStats], None]) -> "Engine":
        """Make the engine; refuse what it cannot run. Engines are imported here and not before."""

    def check(self, options: "Options") -> None:  # noqa: B027
        """Refuse options that do not go with these."""


class Session(Protocol):
    """A SparkSession, of any kind."""

    @property
    def version(self) -> str:
        """The version of Spark."""

    @property
    def sparkContext(self) -> Any:
        """What runs jobs."""


EpochRows = Annotated[Count, About("the most rows that an epoch reads from a source")]


@checked_fields
@dataclass(frozen=True)
class Spark(On):
    """Run on Spark, epoch by epoch; what an epoch left is kept in the checkpoint."""

    name: ClassVar[str] = "spark"
    session: Annotated[
        Session | None,
        About("what to run on (default: the active session, or a new one)", wanted="a SparkSession", flag=False),
    ] = None
    _: KW_ONLY
    master: Annotated[str | None, About("the Spark master of a new session (default: local[*,4])", "URL")] = None
    tasks: Annotated[Count | None, About("tasks of the keyed stages (default: found while it runs)")] = None
    threads: Annotated[
        Count | None,
        About(
            "threads of each task, for operators without memory (default: its cores, `spark.task.cpus`); more pay "
            "where operators release the interpreter's lock and there are fewer tasks than cores"
        ),
    ] = None
    epoch_rows: EpochRows = 1_000_000
    every: Annotated[Time, About('the least time from epoch to epoch, such as 2 or "500 ms"')] = 0.0

    def __post_init__(self) -> None:
        if self.session is not None and self.master is not None:
            raise FlowError("master= is for a new session; leave it out where there is a session")

    def open(self, plan: Plan, options: "Options", listener: Callable[[FlowStats], None]) -> "Engine":
        from penstock.spark.starting import open_engine

        return open_engine(plan, self, options, listener)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Threads(On):
    """Run in threads of this process, without Java."""

    name: ClassVar[str] = "threads"
    lacks: ClassVar[frozenset[str]] = frozenset({"checkpoint"})
    workers: Annotated[
        Count | Literal["utilization"] | Controller[Any, ThreadStatistics] | None,
        About(
            "threads that run operators (default: found while it runs, by throughput; utilization: by how busy they "
            "are)",
            wanted="what finds the number, such as lab.StreamsRules()",
        ),
    ] = None
    model: Annotated[ModelName, About("threading model: which thread runs which operator")] = "dynamic"
    policy: Annotated[
        str | Policy | None,
        About(
            "what chooses the next operator in the dynamic model (default: the Streams scheduler)",
            names=POLICIES,
            wanted="a policy of your own",
        ),
    ] = None
    replicas: Annotated[
        Count | Literal["auto"] | Mapping[str, int] | None,
        About(
            "replicas of every operator that can have some, or of some by name, each with a queue of its own and one "
            "worker at a time; auto: the bottleneck gets more while it runs"
        ),
    ] = None
    partitioned: Annotated[
        Partitioned,
        About(
            "how workers share keyed operators: by a queue, or as replicas with partitions of their own (executor), "
            "which move to where they are balanced"
        ),
    ] = "hybrid"
    batch_rows: Annotated[Count | None, About("the most rows of a batch (default: found from what rows take)")] = None
    quantum: Annotated[
        Time | None,
        About("how long a worker stays with an operator while others have work (default: 50 ms)"),
    ] = None
    binding: Annotated[
        Binding | None,
        About(
            "what rebinds operators to workers in the bound model (default: Penstock's own rule)",
            wanted="lab.Static(), lab.Greedy() or lab.Barrier()",
        ),
    ] = None
    reorder: Annotated[
        MakeReorder | None,
        About("how batches are put back in order (default: without waiting)", wanted="lab.Locked()"),
    ] = None

    def __post_init__(self) -> None:
        model = self.model
        if self.workers is not None and not isinstance(self.workers, int) and model != "dynamic":
            what = f'"{self.workers}"' if isinstance(self.workers, str) else type(self.workers).__name__
            raise FlowError(f'workers={what} needs model="dynamic"; model="{model}" has the threads that it has')
        if self.quantum is not None and model not in ("dynamic", "bound"):
            raise FlowError(
                f'quantum= needs model="dynamic" or model="bound"; with model="{model}" no worker chooses operators'
            )
        if self.binding is not None and model != "bound":
            raise FlowError(f'binding= needs model="bound"; with model="{model}" operators belong to no worker')
        if self.replicas == "auto" and model not in ("dynamic", "dedicated"):
            raise FlowError(
                f'replicas="auto" needs model="dynamic" or model="dedicated"; model="{model}" has no full queues'
            )

    def check(self, options: "Options") -> None:
        if options.latency is None:
            return
        if self.model not in ("dynamic", "dedicated"):
            raise FlowError(
                f'latency= needs model="dynamic" or model="dedicated"; model="{self.model}" has no full queues'
            )
        if self.model == "dedicated" and self.replicas not in (None, "auto"):
            raise FlowError("latency= finds the replicas of operators by itself; leave out replicas=")
        if not isinstance(self.workers, int | str | None):
            raise FlowError("latency= is for Penstock's own rule of how many workers there are; leave out workers=")

    def open(self, plan: Plan, options: "Options", listener: Callable[[FlowStats], None]) -> "Engine":
        from penstock.threads.starting import open_engine

        return open_engine(plan, self, options, listener)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Sequential(On):
    """Run one row at a time: what a flow means."""

    name: ClassVar[str] = "sequential"
    lacks: ClassVar[frozenset[str]] = frozenset({"checkpoint", "latency"})
    epoch_rows: EpochRows = 1_000_000

    def open(self, plan: Plan, options: "Options", listener: Callable[[FlowStats], None]) -> "Engine":
        from penstock.threads.reference import ReferenceRun

        return ReferenceRun(plan, self.epoch_rows, options.end, listener)


ENGINES: Mapping[str, type[On]] = MappingProxyType({kind.name: kind for kind in (Spark, Threads, Sequential)})


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Options:
    """What `ps.run` and `ps.start` take beside the flow."""

    on: Annotated[
        On,
        About("where the flow runs", wanted="ps.Spark(...), ps.Threads(...) or ps.Sequential(...)", flag=False),
    ] = Spark()
    checkpoint: Annotated[
        str | os.PathLike[str] | None,
        About(
            "where the run is kept: start again with the same one and it goes on where it left off (default: it is "
            "forgotten; on the command line `.penstock/<flow name>`)",
            "DIR",
        ),
    ] = None
    latency: Annotated[
        Annotated[str | float | dt.timedelta, Seconds(0, more=True)] | None,
        About(
            'how long a row may take from source to sink, such as "2 s": the one knob of elasticity, for which epochs, '
            "tasks and executors are chosen on Spark, workers, batches and replicas in threads"
        ),
    ] = None
    end: Annotated[bool, About("the end of all sources ends the flow; if not, windows stay open for a later run")] = (
        True
    )
    on_epoch: Annotated[
        Callable[[FlowStats], None] | None,
        About("called with what each epoch did, once it is committed", wanted="a function", flag=False),
    ] = None
    page: Annotated[
        bool | Port | None,
        About("the port of a live page of the run, 0 for any that is free (True: 4147, or any that is free)", "PORT"),
    ] = None
    page_host: Annotated[
        str, About("the address that the page listens on; elsewhere than here it asks for a token", "HOST")
    ] = "127.0.0.1"
    page_token: Annotated[str | None, About("the token of the page (default: a new one each time)", "TOKEN")] = None
    history: Annotated[
        str | os.PathLike[str] | bool | None,
        About(
            "the directory that keeps what the page showed, for `penstock page` (default: in the checkpoint; on the "
            "command line, for the last 20 runs without one, in `.penstock/<flow name>/history`)",
            "DIR",
        ),
    ] = None
    progress: Annotated[
        bool | None,
        About(
            "say on the standard error what the run is doing, until its first epoch is out (default: where that is a "
            "terminal)",
            flag=False,
        ),
    ] = None
    name_keys: Annotated[
        bool, About("name hot keys, which are values of your rows, in decisions, on the page and in the history")
    ] = False

    def __post_init__(self) -> None:
        for name in sorted(self.on.lacks):
            if getattr(self, name) is not None:
                able = [f"on=ps.{kind.__name__}(...)" for kind in ENGINES.values() if name not in kind.lacks]
                raise FlowError(
                    f"{name}= needs {' or '.join(able)}; this run is with on=ps.{type(self.on).__name__}(...)"
                )
        if self.history is True and self.checkpoint is None:
            raise FlowError(
                "history=True keeps the history in the checkpoint; give checkpoint=, or history= a directory"
            )
        self.on.check(self)

    @property
    def directory(self) -> str | None:
        """The checkpoint as text."""
        return None if self.checkpoint is None else os.fspath(self.checkpoint)

    @property
    def target(self) -> float | None:
        return None if self.latency is None else seconds(self.latency, "latency")


def refuse_unknown(function: str, given: dict[str, Any]) -> None:
    """Refuse options that are not there; of those that an engine has, or had until `on=`, say how they are spelled."""
    known = options_of(Options)
    unknown = [name for name in given if name not in known]
    named = ENGINES.get(given.get("engine", ""))
    for kind in ([named] if named else ENGINES.values()) if unknown else ():
        renamed = {"spark": "session", "threads": "workers" if kind.name == "threads" else "threads"}
        moved = {renamed.get(name, name): given[name] for name in unknown if name != "engine"}
        if moved.keys() <= options_of(kind).keys():
            inside = ", ".join(f"{name}={_shown(value)}" for name, value in moved.items())
            raise TypeError(
                f"ps.{function} has no option {unknown[0]!r}: where a flow runs is said by on=; write "
                f"ps.{function}(flow, on=ps.{kind.__name__}({inside}))"
            )
    for name in [name for name in unknown if name != "engine"][:1]:
        able = [f"on=ps.{kind.__name__}({name}=...)" for kind in ENGINES.values() if name in options_of(kind)]
        there = {*known, *(each for kind in ENGINES.values() for each in options_of(kind))}
        raise TypeError(
            f"ps.{function} has no option {name!r}{f'; write {able[0]}' if able else did_you_mean(name, there)}"
        )


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float | dict | None) else "..."
