"""Write `options.md` from the options themselves: `python docs/options_page.py`."""

from __future__ import annotations

from pathlib import Path

from penstock.annotated import Option, options_of
from penstock.options import ENGINES, Options

PAGE = Path(__file__).with_name("options.md")
INTRODUCTION = """\
# Options

`ps.run(flow)` runs on Spark, `ps.run(flow, on=ps.Threads())` in threads of this process, and
`ps.run(flow, on=ps.Sequential())` one row at a time; `ps.start` takes the same and returns at once. What belongs to one
engine is said where the engine is said; what all of them take is said beside it:

```python
import penstock as ps

flow = ps.Flow("numbers")
flow.source("in", [1, 2, 3]).map(lambda n: 2 * n, name="double").sink("out")

run = ps.run(flow, on=ps.Threads(workers=2, batch_rows=100), latency="2 s")
assert run.results["out"] == [2, 4, 6]
```

`penstock run` has the same options as flags: `batch_rows` is `--batch-rows`, and `--engine threads` stands for
`on=ps.Threads(...)`. A value that cannot be is refused before anything runs. This page is made from the options, by
`python docs/options_page.py`.
"""
TITLES = {"spark": "on Spark", "threads": "in threads of this process", "sequential": "one row at a time"}


def page() -> str:
    """Return the whole page."""
    common = f"## With every engine: `ps.run(flow, ...)`\n\n{table(options_of(Options))}"
    tables = [f"## `ps.{kind.__name__}`: {TITLES[kind.name]}\n\n{table(options_of(kind))}" for kind in ENGINES.values()]
    return "\n".join([INTRODUCTION, common, *tables])


def table(options: dict[str, Option]) -> str:
    """Return the table of some options."""
    rows = [f"| `{each.name}` | {values(each)} | {each.about.help} |" for each in options.values()]
    return "\n".join(["| option | may be | what it is |", "|---|---|---|", *rows, ""])


def values(option: Option) -> str:
    """Say what an option may be, its default first where there is one."""
    if option.kinds == (bool,):
        return f"`{option.default}`"
    wanted = option.wanted()
    return wanted if option.default is None or option.name == "on" else f"`{option.default!r}`; {wanted}"


if __name__ == "__main__":
    PAGE.write_text(page())
