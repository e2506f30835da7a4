"""The immutable graph of a flow: nodes by name, each with the ports that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from penstock.errors import FlowError
from penstock.operators.base import Keyed, Operator, Sink, Source
from penstock.rows.keys import SHARDS
from penstock.rows.records import RowType
from penstock.rows.timing import TimeKind


@dataclass(frozen=True)
class Port:
    """An output of a node, with hints on how its reader is to run."""

    node: str
    index: int = 0
    threaded: bool = False
    """Whether the reader's input gets a thread of its own."""
    parallel: int | None = None
    """How many replicas the reader is to have."""


@dataclass(frozen=True)
class Naming:
    """Where a name comes from that the user did not give."""

    base: str
    """What it is called where that name is free; where it is not, a number follows."""
    own: bool
    """Whether the name says what the operator is: that of a function, or of what is declared. A lambda has none."""


@dataclass(frozen=True)
class Node:
    """One operator in its place: what it does, what it reads, and what its rows are."""

    name: str
    operator: Operator
    inputs: tuple[Port, ...]
    types: tuple[RowType | None, ...]
    """The row type of each output port, None where undeclared."""
    time: TimeKind | None
    """The unit of event time of the rows, None where they have none."""
    _: KW_ONLY
    shards: int = SHARDS
    """Into how many shards the keys of the flow are cut, where that is kept or moves."""
    naming: Naming | None = None
    """None where the user gave the name."""
    where: str = field(default="", compare=False)
    """The user's file and line that made it."""


@dataclass(frozen=True)
class SourceNode(Node):
    operator: Source


@dataclass(frozen=True)
class KeyedNode(Node):
    operator: Keyed


@dataclass(frozen=True)
class SinkNode(Node):
    operator: Sink


def kind_of_node(operator: Operator) -> type[Node]:
    """Return the class of the nodes that hold an operator: by it, plans tell sources, keyed operators and sinks."""
    kinds: dict[type[Operator], type[Node]] = {Source: SourceNode, Keyed: KeyedNode, Sink: SinkNode}
    return next((node for kind, node in kinds.items() if isinstance(operator, kind)), Node)


@dataclass(frozen=True)
class Edge:
    """Connect an output port to an input port. `index` is its place among the edges that leave its node."""

    source: Port
    target: str
    port: int
    index: int


class Graph:
    """Nodes in an order in which each stands after those that it reads."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = {name: nodes[name] for name in _sorted(nodes)}
        self.declared = list(nodes)
        self.edges: list[Edge] = []
        self.outgoing: dict[str, list[Edge]] = {name: [] for name in nodes}
        # In the order in which consumers were declared: this is the order of a fan-out.
        for node in nodes.values():
            for port, read in enumerate(node.inputs):
                edge = Edge(read, node.name, port, len(self.outgoing[read.node]))
                self.outgoing[read.node].append(edge)
                self.edges.append(edge)

    def replaced(self, nodes: Mapping[str, Node]) -> Graph:
        """Return the graph with some nodes changed; the order of declaration, and so of fan-outs, stays."""
        return Graph({name: nodes.get(name, self.nodes[name]) for name in self.declared})

    def below(self, name: str) -> set[str]:
        """Return the node and all nodes that its rows can reach."""
        reached, todo = {name}, [name]
        while todo:
            for edge in self.outgoing[todo.pop()]:
                if edge.target not in reached:
                    reached.add(edge.target)
                    todo.append(edge.target)
        return reached


def marks_keep_up(nodes: Mapping[str, Node], port: Port) -> bool:
    """Tell whether the watermark at each row of a stream is surely not below the row's own time.

    It is not where the rows come from one source of one part without slack, by operators without memory alone.
    """
    ports, sources = {port}, set()
    while ports:
        read = ports.pop()
        node = nodes[read.node]
        if isinstance(node, SourceNode):
            source = node.operator
            if read.index != 0 or source.time is None or source.slack != 0 or source.reader.has_parts:
                return False  # rows that came against `order_by` raise no mark
            sources.add(node.name)
        elif node.operator.kind != "stateless" or not node.inputs:
            return False
        ports.update(node.inputs)
    return len(sources) == 1


def _sorted(nodes: Mapping[str, Node]) -> list[str]:
    """Sort topologically, keeping the order of declaration where it is free; refuse a cycle, naming it."""
    done: dict[str, bool] = {}
    order: list[str] = []
    for root in nodes:
        path: list[tuple[str, int]] = [(root, 0)] if root not in done else []
        while path:
            name, child = path.pop()
            if child == 0:
                if done.get(name):
                    continue
                done[name] = False
            inputs = nodes[name].inputs
            if child == len(inputs):
                done[name] = True
                order.append(name)
                continue
            path.append((name, child + 1))
            above = inputs[child].node
            if done.get(above) is False:
                names = [step for step, _ in path]
                cycle = [*names[names.index(above) :], above]
                raise FlowError(
                    f"the flow has a cycle: {' -> '.join(reversed(cycle))}; a flow runs from sources to "
                    f"sinks, so break it, for example by keeping the fed-back value in the state of a keyed "
                    f"operator"
                )
            if above not in done:
                path.append((above, 0))
    return order
