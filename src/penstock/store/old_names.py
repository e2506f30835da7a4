"""Where the classes that state is made of were called otherwise: what was pickled then is read now."""

from __future__ import annotations

import io
import pickle
from typing import Any

MOVED: dict[str, str] = {
    "penstock.connectors.generated": "penstock.connectors.sources",
    "penstock.connectors.items": "penstock.connectors.sources",
    "penstock.connectors.reader": "penstock.connectors.interfaces",
    "penstock.connectors.socket": "penstock.connectors.sources",
    "penstock.connectors.writer": "penstock.connectors.interfaces",
    "penstock.demo.": "penstock.lab.demo.",
    "penstock.keys": "penstock.rows.keys",
    "penstock.operators.expiring": "penstock.operators.by_time",
    "penstock.operators.port_buffer": "penstock.operators.ports",
    "penstock.operators.port_waits": "penstock.operators.ports",
    "penstock.operators.timed_join": "penstock.operators.join",
    "penstock.ranges": "penstock.rows.keys",
    "penstock.row_types": "penstock.rows.row_types",
    "penstock.rows": "penstock.rows.records",
    "penstock.rows.flat_rows": "penstock.rows.chunk",
    "penstock.rows.ranges": "penstock.rows.keys",
    "penstock.timing": "penstock.rows.timing",
    "penstock.workloads.": "penstock.lab.workloads.",
}
"""Modules by the names that they had once; with a dot at the end, all of a package. A name stays here for as long as
there may be checkpoints that hold it."""
_STOCKS = "penstock.lab.workloads.stock_exchange"
MOVED |= {
    f"{_STOCKS}.{old}": f"{_STOCKS}.{new}"
    for new, names in {
        "statistics": "moving_average volume_weighted_price composite_index candles volatility top_movers",
        "events": "price_alarm circuit_breaker large_trade spread wash_trade",
    }.items()
    for old in names.split()
}


def current(module: str) -> str:
    """Return what a module is called now, however often it was moved."""
    packages = (old for old in MOVED if old.endswith(".") and module.startswith(old))
    now = MOVED.get(module) or next((MOVED[old] + module.removeprefix(old) for old in packages), module)
    return now if now == module else current(now)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(current(module), name)


def unpickled(data: memoryview | bytes) -> Any:
    """Read what was pickled, by this version or one before it."""
    return _Unpickler(io.BytesIO(data)).load()
