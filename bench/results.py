"""Keep the results of benchmarks: save and load them, read the figures out of one, compare two."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, Any]

CARRIED = ("benchmark", "command", "seed", "machine")
"""What every result carries besides its figures."""


class ResultError(Exception):
    """Refuse a file that is no result, saying what to do instead."""


@dataclass(frozen=True)
class Figure:
    """One number of a result, with its interval where it was measured several times."""

    label: str
    """Which of the experiments of the benchmark it is of; empty where there is one."""
    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def full_name(self) -> str:
        """Return what tells it from the other figures of its result."""
        return f"{self.label}: {self.name}" if self.label else self.name


def save(result: Result, where: Path) -> Path:
    """Write a result to a file, or to a new file in a directory; return the file."""
    if where.is_dir() or not where.suffix:
        where.mkdir(parents=True, exist_ok=True)
        where = where / f"{result['benchmark']}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(result, indent=2) + "\n")
    return where


def load(path: Path) -> Result:
    """Read a result; what a benchmark printed with --json, with other lines before it, is one too."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}") from None
    try:
        result = json.loads(text)
    except ValueError:
        try:
            result = json.loads(text.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise ResultError(f"{path} is no result; make one with: python -m bench run NAME --save {path}") from None
    missing = [name for name in CARRIED if not isinstance(result, dict) or name not in result]
    if missing:
        raise ResultError(
            f"{path} is no result: it has no {missing[0]!r}; make one with: python -m bench run ... --save"
        )
    return dict(result)


def figures(result: Result) -> list[Figure]:
    """Return the measured numbers of a result, experiment by experiment; settings among them come along."""
    return list(_figures({name: value for name, value in result.items() if name not in CARRIED}, ""))


def _figures(part: Result, label: str) -> Iterator[Figure]:
    intervals = part.get("intervals", {})
    for name, value in part.items():
        if name == "intervals":
            continue
        if isinstance(value, dict):
            yield from _figures(value, f"{label}, {name}" if label else name)
        elif isinstance(value, list):
            yield from _of_list(value, label)
        elif _is_number(value):
            bounds = intervals.get(name) or intervals.get(re.sub(r"_rows_s$", "", name)) or {}
            yield Figure(label, name, float(value), bounds.get("low"), bounds.get("high"))


def _of_list(parts: list[Any], label: str) -> Iterator[Figure]:
    """Take experiments that stand in a list."""
    whole = [part for part in parts if isinstance(part, dict)]
    for part, name in zip(whole, _names(whole), strict=True):
        yield from _figures(part, f"{label}, {name}" if label else name)


def _names(parts: list[Result]) -> list[str]:
    """Find what experiments are called: the first of their fields that tell them apart, numbers only if need be."""
    if not parts:
        return []
    fields: list[str] = []
    for field in parts[0]:
        if all(isinstance(part.get(field), str) or _is_number(part.get(field)) for part in parts):
            fields.append(field)
            if _distinct(parts, fields):
                break
    for field in [field for field in fields if _is_number(parts[0][field])]:
        fewer = [each for each in fields if each != field]
        if _distinct(parts, fewer):
            fields = fewer
    names = [", ".join(_said(field, part[field]) for field in fields) for part in parts]
    if len(set(names)) < len(names) or not fields:
        return [f"{name} ({number})".strip() for number, name in enumerate(names, start=1)]
    return names


def _distinct(parts: list[Result], fields: list[str]) -> bool:
    return bool(fields) and len({tuple(part[field] for field in fields) for part in parts}) == len(parts)


def _said(field: str, value: str | float) -> str:
    return value if isinstance(value, str) else f"{field} {value:g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Difference:
    """One figure of two results."""

    name: str
    before: Figure
    now: Figure

    @property
    def ratio(self) -> float | None:
        """Return the new value as a part of the old one."""
        return self.now.value / self.before.value if self.before.value else None

    @property
    def verdict(self) -> str:
        """Say whether they differ by more than the noise: whether their intervals are apart."""
        before, now = self.before, self.now
        if before.low is None or before.high is None or now.low is None or now.high is None:
            return ""
        if now.low > before.high:
            return "higher"
        return "lower" if now.high < before.low else "within noise"


def compare(before: Result, now: Result) -> list[Difference]:
    """Pair the figures of two results of one benchmark."""
    if before["benchmark"] != now["benchmark"]:
        raise ResultError(f"{before['benchmark']} cannot be compared with {now['benchmark']}")
    old = {figure.full_name: figure for figure in figures(before)}
    return [
        Difference(figure.full_name, old[figure.full_name], figure)
        for figure in figures(now)
        if figure.full_name in old
    ]


def changed_surroundings(before: Result, now: Result) -> list[str]:
    """Say what was not the same about machine, versions, command or seed."""
    found = [f"{name}: {before[name]} -> {now[name]}" for name in ("command", "seed") if before[name] != now[name]]
    machines = (_flat(before["machine"]), _flat(now["machine"]))
    for name in sorted(machines[0].keys() | machines[1].keys()):
        old, new = (machine.get(name, "none") for machine in machines)
        if old != new and name != "load_1min":
            found.append(f"{name}: {old} -> {new}")
    return found


def _flat(machine: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in machine.items() if name != "versions"}, **machine.get("versions", {})}
