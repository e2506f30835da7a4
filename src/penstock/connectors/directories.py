"""The directories that the sinks of a flow write: each has its own, apart from those of others and of sources."""

from __future__ import annotations

import os

from penstock.connectors.partitions import check_fields
from penstock.connectors.paths import is_hidden
from penstock.connectors.read import Files
from penstock.connectors.write import Directory
from penstock.errors import FlowError
from penstock.plan.graph import SinkNode
from penstock.plan.plan import Plan


def sink_directories(plan: Plan) -> list[tuple[SinkNode, Directory]]:
    """Return the sinks that write directories; refuse those whose rows another would replace, or take for its own."""
    found: dict[str, tuple[SinkNode, Directory]] = {}
    for node in plan.sinks:
        writer = node.operator.writer
        if not isinstance(writer, Directory):
            continue
        row = plan.nodes[node.inputs[0].node].types[node.inputs[0].index]
        if row is not None:
            check_fields(node.name, writer, row.schema)
        place = _real(writer.path)
        for other, (one, _) in found.items():
            if other == place:
                raise FlowError(
                    f"the sinks {one.name!r} and {node.name!r} both write to {writer.path}; give each a directory of "
                    f"its own"
                )
            inner, outer = (node, one) if _is_inside(place, other) else (one, node)
            if _is_inside(place, other) or _is_inside(other, place):
                raise FlowError(
                    f"the directory of sink {inner.name!r} is inside that of sink {outer.name!r}, and who reads that "
                    f"would take its files for rows; put them beside each other"
                )
        _refuse_source(plan, node.name, writer.path, place)
        found[place] = node, writer
    return list(found.values())


def _refuse_source(plan: Plan, sink: str, path: str, place: str) -> None:
    for source in plan.sources:
        reader = source.operator.reader
        if isinstance(reader, Files):
            read = _real(reader.path)
            if place == read or (_is_inside(place, read) and not is_hidden(place[len(read) :])):
                raise FlowError(
                    f"sink {sink!r} writes to {path}, which source {source.name!r} reads with all that is below "
                    f"{reader.path}: the flow would read its own rows; write elsewhere"
                )


def _real(path: str) -> str:
    """Return one name for a place, whatever dots and links are in the path."""
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def _is_inside(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")
