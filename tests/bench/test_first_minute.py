"""What the benchmark of the first minute reads from the programs that it starts."""

from __future__ import annotations

import sys

import pytest

from bench import first_minute

TALKS = """
import sys
print("penstock: flow 'first', 0.1 s: opening the checkpoint; of late", file=sys.stderr, flush=True)
print("no row yet", flush=True)
print("{'total': 1}", flush=True)
"""


def test_the_first_row_counts_and_not_what_is_said_before() -> None:
    said: list[str] = []
    rows: list[str] = []

    def is_output(line: str) -> bool:
        rows.append(line)
        return "total" in line

    command = [sys.executable, "-c", TALKS]
    assert first_minute.first_line(command, is_output, lambda line, _: said.append(line)) > 0
    assert rows == ["no row yet\n", "{'total': 1}\n"]
    assert said == ["penstock: flow 'first', 0.1 s: opening the checkpoint; of late"]


@pytest.mark.parametrize("program", ["print('nothing of use')", "print('total', flush=True); raise SystemExit(3)"])
def test_a_program_that_fails_gives_no_figure(program: str) -> None:
    with pytest.raises(AssertionError, match="ended with"):
        first_minute.first_line([sys.executable, "-c", program], lambda line: "total" in line, lambda line, _: None)


def test_the_rounds_that_count_are_the_last() -> None:
    assert first_minute.middle_of({"a": [9.0, 1.0, 2.0, 3.0], "b": [9.0]}, 3) == {"a": 2.0, "b": 9.0}
