"""Build the graphs that the papers measure, as operators with costs."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Operator:
    """Describe one operator; operators are numbered by their place in the graph."""

    cost: float
    """Seconds of computing for each tuple, on a core of its own."""
    outputs: tuple[int, ...] = ()
    wait: float = 0.0
    """Seconds of waiting for each tuple, off the core."""
    selectivity: float = 1.0
    permits: int | None = 1
    """How many workers may run it at once: 1 if it has state, one per shard if keyed, None if it has none."""
    split: bool = False
    """Send each batch to one output in turn instead of to all of them."""
    locked: bool = False
    """Many producers push to it at once, one tuple at a time under its lock."""
    source: bool = False
    """It makes batches, on a thread of its own, as fast as there is room for them. Where a policy chooses, these wait
    until a worker brings them in, which takes the source's cost."""
    batches: int | None = None
    """For a source: how many batches it makes in all; None never ends."""
    rate: float | None = None
    """For a source: tuples per second that it makes at most; None makes as many as there is room for."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Hold operators, sources first, each before those that it sends to."""

    name: str
    operators: tuple[Operator, ...]

    def __post_init__(self) -> None:
        """Refuse edges that go backwards: the simulator has no feedback."""
        for i, operator in enumerate(self.operators):
            if any(not i < to < len(self.operators) for to in operator.outputs):
                raise ValueError(f"{self.name}: operator {i} must send to later operators, not {operator.outputs}")

    @property
    def depths(self) -> tuple[int, ...]:
        """Return the longest way from a source to each operator."""
        depths = [0] * len(self.operators)
        for i, operator in enumerate(self.operators):
            for to in operator.outputs:
                depths[to] = max(depths[to], depths[i] + 1)
        return tuple(depths)


def pipeline(length: int, cost: float) -> Graph:
    """Return a source, a row of operators, and a sink."""
    middle = [Operator(cost, (i + 1,)) for i in range(1, length + 1)]
    source = Operator(0.0, (1,), source=True)
    return Graph(f"pipeline-{length}", (source, *middle, Operator(0.0)))


def data_parallel(width: int, cost: float) -> Graph:
    """Return a source that splits its batches over many operators, which all send to one sink."""
    workers = [Operator(cost, (width + 1,)) for _ in range(width)]
    source = Operator(0.0, tuple(range(1, width + 1)), split=True, source=True)
    return Graph(f"data-parallel-{width}", (source, *workers, Operator(0.0, locked=True)))


def mixed(width: int, depth: int, cost: float) -> Graph:
    """Return a source that splits over several rows of operators, which all send to one sink."""
    sink = width * depth + 1
    source = Operator(0.0, tuple(1 + lane * depth for lane in range(width)), split=True, source=True)
    rows = []
    for lane in range(width):
        first = 1 + lane * depth
        rows += [Operator(cost, (i + 1 if i + 1 < first + depth else sink,)) for i in range(first, first + depth)]
    return Graph(f"mixed-{width}x{depth}", (source, *rows, Operator(0.0, locked=True)))


def tree(depth: int, branches: int, cost: float) -> Graph:
    """Return a tree of operators, each sending its batches to one branch in turn, and a sink at the end."""
    inner = sum(branches**level for level in range(depth))
    sink = inner + 1
    operators = [Operator(0.0, (1,), source=True)]
    for i in range(inner):
        children = tuple(1 + branches * i + k for k in range(1, branches + 1))
        leaf = children[0] > inner
        operators.append(Operator(cost, (sink,) if leaf else children, split=not leaf))
    return Graph(f"tree-{depth}-{branches}", (*operators, Operator(0.0, locked=True)))


def reverse_tree(depth: int, branches: int, cost: float) -> Graph:
    """Return a source that splits over the leaves of a tree whose root sends to a sink."""
    levels = [branches**level for level in reversed(range(depth))]
    operators = [Operator(0.0, tuple(range(1, levels[0] + 1)), split=True, source=True)]
    start = 1
    for size in levels:
        below = start + size
        operators += [Operator(cost, (below + k // branches,), locked=start > 1) for k in range(size)]
        start += size
    return Graph(f"reverse-tree-{depth}-{branches}", (*operators, Operator(0.0)))


def with_rate(graph: Graph, rate: float) -> Graph:
    """Return the graph with sources that make so many tuples per second in all."""
    sources = sum(operator.source for operator in graph.operators)
    operators = tuple(
        replace(operator, rate=rate / sources) if operator.source else operator for operator in graph.operators
    )
    return Graph(graph.name, operators)
