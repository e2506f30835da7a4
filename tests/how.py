"""Say how a flow runs by the name of an engine: for tests that run on several."""

from __future__ import annotations

from typing import Any

from penstock.annotated import options_of
from penstock.options import ENGINES


def how(engine: str = "spark", **options: Any) -> dict[str, Any]:
    """Return the options of `ps.run`: those of the engine go into its `on=`, and the others beside it."""
    kind = ENGINES[engine]
    renamed = {"spark": "session", **({"threads": "workers"} if engine == "threads" else {})}
    given = {renamed.get(name, name): value for name, value in options.items()}
    mine = {name: value for name, value in given.items() if name in options_of(kind)}
    return {"on": kind(**mine), **{name: value for name, value in given.items() if name not in mine}}
