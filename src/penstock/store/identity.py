"""Who a checkpoint belongs to: what of a flow its state rests on, and the refusal of a flow that it does not fit."""

from __future__ import annotations

from penstock.errors import CheckpointError, FlowError
from penstock.operators.base import Keyed, Source
from penstock.operators.by_time import Expiring
from penstock.operators.join import TimedJoin
from penstock.operators.lookup import Lookup
from penstock.plan.graph import KeyedNode, Node, Port, SinkNode, SourceNode
from penstock.plan.plan import Plan
from penstock.rows.timing import arrival
from penstock.store.objects import Json

FORMAT = 3
READABLE = (1, 2, 3)
"""Formats that this version goes on with: in the first, names carried no fence, and sinks were published first; in the
second, no rows of sinks waited for others."""


def identity_of(plan: Plan) -> Json:
    """Return what of a flow its state, and the rows that it has written, rest on."""
    return {
        "format": FORMAT,
        "flow": plan.name,
        "shards": plan.shards,
        "sources": {node.name: _describe_source(node) for node in plan.sources},
        "operators": {node.name: {**_describe(node), "place": _place(plan, node)} for node in plan.keyed},
        "sinks": {node.name: described for node in plan.sinks if (described := _describe_sink(plan, node)) is not None},
    }


def _describe_sink(plan: Plan, node: SinkNode) -> Json | None:
    """Return where a sink's files are and what is in them; None for one without files."""
    writer = node.operator.writer.directory
    if writer is None:
        return None
    row = plan.row_type(node.inputs[0])
    schema = None if row is None else row.schema.serialize().to_pybytes().hex()
    return {
        "path": writer.path,
        "format": writer.format,
        "schema": schema,
        **({"partition_by": list(writer.partition_by)} if writer.partition_by else {}),
    }


def check_names(plan: Plan) -> None:
    """Refuse operators that a later flow could not tell apart: their state might go to another without a word."""
    for node in plan.nodes.values():
        if not isinstance(node.operator, (Keyed, Lookup)):
            continue
        naming = node.naming
        if naming is None:
            continue
        if not naming.own:
            raise FlowError(
                f"operator {node.name!r} keeps its state in the checkpoint, and its function is a lambda or a partial, "
                f"which has no name of its own: a later flow could not tell whose the state is; give the operator "
                f"one with name=, or use a function with a name"
            )
        if node.name != naming.base:
            raise FlowError(
                f"operator {node.name!r} keeps its state in the checkpoint, and has its number because {naming.base!r} "
                f"is taken: in a later flow it could be the other way round, and its state go to the other without a "
                f"word; give each operator of this kind or function a name of its own with name="
            )


def _place(plan: Plan, node: Node) -> list[list[str]]:
    """Return, for each input of an operator, the nearest sources and operators with state that its rows come from.

    What is between them has no memory, and may change as the code of functions may.
    """

    def above(port: Port) -> set[str]:
        read = plan.nodes[port.node]
        if isinstance(read.operator, (Source, Keyed)):
            return {f"{read.name}.{read.operator.outputs[port.index]}" if port.index else read.name}
        return {name for each in read.inputs for name in above(each)}

    return [sorted(above(port)) for port in node.inputs]


def _describe_source(node: SourceNode) -> Json:
    time = repr(arrival) if node.operator.by_arrival else node.operator.time
    return {"order_by": list(node.operator.order_by), "time": time}


def _describe(node: KeyedNode) -> Json:
    operator = node.operator
    keys = None if operator.keys is None else [str(key) for key in operator.keys]
    # The key of a join's other port has the same.
    cut = None if operator.keys is None else operator.keys[0].ranges
    ranges = None if cut is None else [repr(bound) for bound in cut.bounds]
    outer = operator.logic
    logic, lifetime = (outer.inner, outer.lifetime) if isinstance(outer, Expiring) else (outer, None)
    windows = logic.reach if isinstance(logic, TimedJoin) else getattr(logic, "windows", logic)
    sizes = {name: getattr(each, name) for each in (windows, lifetime) for name in _SIZES if hasattr(each, name)}
    fold = getattr(logic, "fold_", None)
    aggregation = getattr(logic if fold is None else fold, "aggregation", None)
    labels = [] if aggregation is None else [aggregate.label for aggregate in aggregation.aggregates]
    return {
        "kind": operator.kind,
        "keys": keys,
        "ranges": ranges,
        "logic": " of ".join(type(part).__name__ for part in (fold, logic) if part is not None),
        "sizes": sizes,
        # A join in windows holds the same whatever comes out of it.
        "how": logic.how if isinstance(logic, TimedJoin) else None,
        "aggregates": labels,
        "by": repr(arrival) if operator.by_arrival else None,
        "keeps_rows": not getattr(logic, "one_at_a_time", False),
    }


_SIZES = ("size", "every", "offset", "gap", "low", "high", "ttl", "within", "shape")
_FIXED = {
    "kind": "kind",
    "keys": "key",
    "ranges": "ranges of keys",
    "logic": "logic",
    "sizes": "window or time to live",
    "aggregates": "aggregates",
    "how": "how=",
    "by": "by=",
}
"""What must not change in an operator with state, and what it is called."""


def check_fits(path: str, old: Json, new: Json) -> None:
    """Refuse a flow whose state is not the checkpoint's, saying what to do."""
    other = "or start with a new checkpoint"
    if old["format"] not in READABLE:
        raise CheckpointError(
            f"{path} was written in format {old['format']}, this Penstock reads format {new['format']}; use the "
            f"version that wrote it, {other}"
        )
    if old["flow"] != new["flow"]:
        raise CheckpointError(
            f"{path} belongs to the flow {old['flow']!r}, not to {new['flow']!r}; give that flow its old name, {other}"
        )
    if old["shards"] != new["shards"]:
        raise CheckpointError(
            f"{path} has {old['shards']} shards, the flow now has {new['shards']}; give "
            f"Flow({new['flow']!r}, shards={old['shards']}), {other}"
        )
    for name in old["sources"]:
        if name not in new["sources"]:
            raise CheckpointError(
                f"the source {name!r} of {path} is gone from the flow; put it back under its old name, {other}"
            )
        for part in ("order_by", "time"):
            if old["sources"][name][part] != new["sources"][name][part]:
                raise CheckpointError(
                    f"the source {name!r} had {part}={old['sources'][name][part]!r} in {path} and now has "
                    f"{new['sources'][name][part]!r}; change it back, {other}"
                )
    for name, was in old["operators"].items():
        now = new["operators"].get(name)
        if now is None:
            raise CheckpointError(
                f"the stateful operator {name!r} of {path} is gone from the flow, or was renamed; give it its old "
                f"name with name={name!r}, {other}"
            )
        if "place" in was and not _keeps(was["place"], now["place"]):
            raise CheckpointError(
                f"the operator {name!r} stood after {_shown(was['place'])} in {path} and now stands after "
                f"{_shown(now['place'])}: other rows would meet its state; put it back, give a new operator a new "
                f"name=, {other}"
            )
        for part, what in _FIXED.items():
            had = was.get(part)  # checkpoints from before there were ranges do not name them
            if had != now[part]:
                raise CheckpointError(
                    f"the operator {name!r} had the {what} {had!r} in {path} and now has {now[part]!r}, which "
                    f"its state does not fit; change it back, {other}"
                )
        kept, keeps = was.get("keeps_rows", now["keeps_rows"]), now["keeps_rows"]
        if kept != keeps:
            raise CheckpointError(
                f"the sessions of the operator {name!r} are {'with' if kept else 'without'} their rows in {path}, and "
                f"the flow now keeps them {'with' if keeps else 'without'}, because the slack of their source, or what "
                f"is between the two, is another, or an earlier release did not see its partitions; "
                f"change it back, {other}"
            )


def _keeps(was: list[list[str]], now: list[list[str]]) -> bool:
    """Tell whether all rows that met the state of an operator still do; others may join them, as of a new source."""
    return len(was) == len(now) and all(set(had) <= set(has) for had, has in zip(was, now, strict=True))


def _shown(place: list[list[str]]) -> str:
    return " and ".join(" with ".join(map(repr, names)) for names in place)
