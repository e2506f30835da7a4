"""Cut a plan into stages: one Spark stage each, with a shuffle between two of them.

Rows cross a shuffle where they enter a keyed operator or a sink. An operator's stage is one more than the highest
stage of what it reads, or the same for operators without memory, so that all operators of a stage run in the same
tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from penstock.connectors.interfaces import Slice, Split
from penstock.errors import FlowError
from penstock.kernels.chains import Chain, find_chains, make_chain
from penstock.kernels.intake import SourceMarks
from penstock.operators.base import Keyed, Sink
from penstock.operators.calling import Calling, open_calling
from penstock.plan.graph import Edge, KeyedNode, Node, SinkNode
from penstock.plan.plan import Plan, takes_marks
from penstock.rows.timing import Ticks
from penstock.spark.places import BatchPlaces
from penstock.store.checkpoint import ShardIndex

Grid = tuple[Ticks, Ticks, Ticks]
"""(period, offset, delay): marks matter where (mark - delay - offset) reaches the next multiple of the period."""


@dataclass(frozen=True)
class Stages:
    """A plan with its stages."""

    plan: Plan

    @cached_property
    def stage_of(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, node in self.plan.nodes.items():
            above = max((found[port.node] for port in node.inputs), default=0)
            found[name] = above + isinstance(node.operator, (Keyed, Sink))
        return found

    @cached_property
    def last(self) -> int:
        """Return the highest stage; what leaves it goes to the driver."""
        return max(self.stage_of.values())

    @cached_property
    def edges(self) -> list[Edge]:
        """Return the edges in a fixed order; envelopes name them by number."""
        return self.plan.graph.edges

    @cached_property
    def chains(self) -> dict[str, Chain]:
        """Return the chains of operators that run as one loop, each by the name of its first operator."""
        shapes = self.plan.layout.shapes
        return {nodes[0].name: make_chain(nodes, shapes[nodes[0].name].width) for nodes in find_chains(self.plan)}

    @cached_property
    def callings(self) -> dict[str, Calling]:
        """Return what this process keeps for the calls of operators, from epoch to epoch."""
        made = {name: open_calling(node.operator, name) for name, node in self.plan.nodes.items()}
        return {name: calling for name, calling in made.items() if calling is not None}

    def entries(self, stage: int) -> list[KeyedNode | SinkNode]:
        """Return the keyed operators and sinks that a stage begins with."""
        return [
            node
            for name, node in self.plan.nodes.items()
            if self.stage_of[name] == stage and isinstance(node, (KeyedNode, SinkNode))
        ]

    @cached_property
    def grids(self) -> dict[str, dict[int, list[Grid] | None]]:
        """Return, for each source and each stage with operators that its marks can fire, the grids that marks must
        cross to matter there; None where every mark does."""
        found: dict[str, dict[int, list[Grid] | None]] = {source.name: {} for source in self.plan.sources}
        for name, node in self.plan.nodes.items():
            if not takes_marks(node):
                continue
            grid = node.operator.logic.mark_grid
            for route in self.plan.layout.shapes[name].marks:
                if route.source not in found:
                    continue  # the time of day, which all tasks know
                by_stage = found[route.source]
                known = by_stage.setdefault(self.stage_of[name], [])
                if grid is None or known is None:
                    by_stage[self.stage_of[name]] = None
                else:
                    known.append((*grid, route.delay))
        return found


SLICE_ROWS = 100_000
"""A sink is sliced only where each slice has about as many rows: a slice costs a task."""


def even_table(shards: int, tasks: int, offset: int = 0) -> list[int]:
    """Give each task the same number of shards."""
    return [(offset + shard * tasks // shards) % tasks for shard in range(shards)]


def check_table(plan: Plan, operator: str, table: list[int], tasks: int) -> None:
    node = next((node for node in plan.keyed if node.name == operator), None)
    if node is None:
        names = ", ".join(repr(node.name) for node in plan.keyed) or "none"
        raise FlowError(f"there is no keyed operator {operator!r} to route; the flow has {names}")
    count = shard_count(node)
    if len(table) != count:
        raise FlowError(f"operator {operator!r} has {count} shards, the table names {len(table)}")
    if any(not 0 <= task < tasks for task in table):
        raise FlowError(
            f"the table of operator {operator!r} names tasks outside 0 to {tasks - 1}; set the number of tasks first"
        )


def slice_bounds(plan: Plan, node: SinkNode, slices: dict[str, Slice], tasks: int) -> list[int]:
    """Return the positions at which the slices of a sink begin, but for the first; none where one slice must do.

    Slices are cut by the place of source rows, so it must be known before the epoch is read.
    """
    row = plan.row_type(node.inputs[0])
    if row is None and node.operator.writer.files is not None:
        return []  # the schema of undeclared rows is found in one place
    counted = [found.rows for found in slices.values()]
    if plan.layout.base != 1 or any(rows is None for rows in counted):
        return []
    total = sum(rows or 0 for rows in counted)
    count = min(tasks, total // SLICE_ROWS)
    wanted = [number * total // count for number in range(1, count)]
    if not wanted:
        return []
    return _turn_bounds(plan, slices, wanted) if plan.layout.sequence == "turns" else _bounds(plan, slices, wanted)


def _bounds(plan: Plan, slices: dict[str, Slice], wanted: list[int]) -> list[int]:
    """Return the position after so many rows, one source after the other."""
    bounds: list[int] = []
    passed = 0
    for number, source in enumerate(plan.sources):
        for split in slices[source.name].splits if source.name in slices else ():
            size = split.rows or 0
            while len(bounds) < len(wanted) and passed + size > wanted[len(bounds)]:
                bounds.extend(plan.layout.place(number, split.first + wanted[len(bounds)] - passed))
            passed += size
    return bounds


def _turn_bounds(plan: Plan, slices: dict[str, Slice], wanted: list[int]) -> list[int]:
    """Return the position before the turn by which about so many rows have had theirs."""
    first = min(found.splits[0].first for found in slices.values())
    sizes = sorted(found.rows or 0 for found in slices.values())
    bounds: list[int] = []
    for rows in wanted:
        turns, passed, left = 0, 0, len(sizes)
        for size in sizes:
            # Up to this turn, as many sources as are left have a row in each.
            if passed + (size - turns) * left >= rows:
                break
            passed, turns, left = passed + (size - turns) * left, size, left - 1
        bounds.extend(plan.layout.place(0, first + turns + (rows - passed) // max(1, left)))
    return bounds


CHAIN_LIMIT = 8
"""A shard is written whole if it changes and its chain has as many files, of as many bytes as its first."""
LONG_CHAIN = 4 * CHAIN_LIMIT
"""So many files are too many, whatever is in them."""


@dataclass(frozen=True)
class StatePointers:
    """Which files hold the shards of one operator: for each shard, numbers into `files`, oldest first."""

    files: tuple[str, ...] = ()
    chains: dict[int, tuple[int, ...]] = field(default_factory=dict)
    due: dict[int, Ticks] = field(default_factory=dict)
    """The earliest timer of each shard that has one."""
    full: frozenset[int] = frozenset()
    """Shards whose chain is long: they are written whole if they change."""

    @classmethod
    def of(cls, index: ShardIndex, epoch: int) -> StatePointers:
        """Return what tasks must know of an operator's files in an epoch."""
        files = index.files()
        number = {name: i for i, name in enumerate(files)}
        chains = {shard: tuple(number[name] for name in chain) for shard, chain in index.chains.items()}
        return cls(tuple(files), chains, dict(index.due), frozenset(_written_whole(index, epoch)))


def _written_whole(index: ShardIndex, epoch: int) -> list[int]:
    """Return the shards whose chain is to end: not all at once, for that would be all of the state in one epoch."""
    sizes = index.sizes
    long = [n for n, found in sizes.items() if len(found) >= CHAIN_LIMIT and sum(found[1:]) >= found[0]]
    if len(long) > max(1, len(sizes) // CHAIN_LIMIT):
        long = [n for n in long if n % CHAIN_LIMIT == epoch % CHAIN_LIMIT]
    return [*long, *(n for n, found in sizes.items() if len(found) >= LONG_CHAIN)]


@dataclass(frozen=True, kw_only=True)
class EpochSpec:
    """One epoch."""

    epoch: int
    tasks: tuple[int, ...]
    """The number of tasks of each stage."""
    tables: dict[str, tuple[int, ...]]
    """For each keyed operator, the task of each shard; for each sink, the task of each slice."""
    slices: dict[str, tuple[int, ...]]
    """For each sink, the positions at which its slices begin, but for the first."""
    splits: tuple[tuple[tuple[str, Split], ...], ...]
    """For each task of stage 0, the (source, split) pairs that it reads."""
    marks: dict[str, SourceMarks]
    """The watermarks of each source and its parts before the epoch."""
    ends: dict[str, tuple[int, ...]]
    """The sources that end with this epoch, and where."""
    state: dict[str, StatePointers]
    checkpoint: str
    flow_id: str
    """Names the flow and its checkpoint in a worker's cache."""
    running: frozenset[str]
    """The flows that this driver runs now: workers let go of what they have of others."""
    sink_schemas: dict[str, bytes]
    """The schema of a sink whose rows are not declared, once it is known."""
    fence: int
    """The number of the driver's lease: tasks of a driver that is gone write where it is not looked for."""
    in_flight: dict[str, int] = field(default_factory=dict)
    """For operators that wait, how many rows at once, where it is not what the flow says."""
    threads: int = 1
    """Threads of a task, for operators without memory."""
    name_keys: bool = False
    """Whether the hottest keys may leave a task by name: they are values of rows."""
    solo: bool = False
    """Whether one task runs all stages one after the other: for epochs so small that a shuffle would cost more."""

    now: Ticks = 0
    """When the rows of sources arrive, where something goes by that."""
    clocks: dict[str, Ticks] = field(default_factory=dict)
    """How far the time of day had come before the epoch where each source begins."""
    contents: dict[str, str] = field(default_factory=dict)
    """For each lookup, the name under which the checkpoint keeps what its table has in this epoch."""
    batches: dict[str, BatchPlaces] = field(default_factory=dict)
    """For each streaming DataFrame that the epoch reads, what tells the places of its rows."""
    shared: str | None = None
    """A directory for rows that go from one task to another, where all tasks are on this machine."""

    @property
    def waters(self) -> dict[str, Ticks]:
        """Return the watermark of each source before the epoch, and how far the time of day had come there."""
        return {name: marks.water for name, marks in self.marks.items()} | self.clocks

    def following(self, stage: int) -> int:
        """Return the number of tasks that a stage's envelopes go to: those of the next stage, or the driver."""
        return self.tasks[stage + 1] if not self.solo and stage + 1 < len(self.tasks) else 1


def shard_count(node: Node) -> int:
    """Return the number of shards of an operator: one where its state is for the whole stream."""
    return node.shards if node.operator.kind == "partitioned" else 1
