"""Patterns against a search through all rows that shares no code with them; and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import read
from penstock.errors import FlowError
from penstock.flow import Flow, Stream
from penstock.operators.pattern import Match, absent, step

from ..running import out

KIND = {"t": int, "x": str, "n": int}
Found = list[list[int]]


def stream(letters: str, times: list[int] | None = None, **options: Any) -> Stream:
    """Make rows of letters; each has its number, and a time that is its number unless times are given."""
    rows = [{"t": times[n] if times else n, "x": x, "n": n} for n, x in enumerate(letters)]
    return Flow("f").source("in", read.items(rows, schema=KIND), time="t", **options)


def numbers(match: Match) -> list[int]:
    return [row.n for row in match.rows]


def is_in(letters: str) -> Any:
    return lambda row: row.x in letters


def found(letters: str, *steps: Any, within: int = 100, times: list[int] | None = None, **options: Any) -> Found:
    return out(stream(letters, times).pattern(*steps, within=within, combine=numbers, name="p", **options))


A, B, C = step("a", is_in("a")), step("b", is_in("b")), step("c", is_in("c"))


class TestMeaning:
    def test_rows_between_are_passed_over(self) -> None:
        assert found("axxbab", A, B) == [[0, 3], [4, 5]]

    def test_strict(self) -> None:
        assert found("axbab", A, B, strict=True) == [[3, 4]]

    def test_no_row_is_in_two_matches(self) -> None:
        assert found("aab", A, B) == [[0, 2]]
        assert found("aab", A, B, overlap=True) == [[0, 2], [1, 2]]

    def test_less_than_within_after_the_first(self) -> None:
        assert found("ab", A, B, within=3, times=[0, 3]) == []
        assert found("ab", A, B, within=4, times=[0, 3]) == [[0, 1]]
        # The first one is too old by then; the second is not.
        assert found("aab", A, B, within=3, times=[0, 2, 4]) == [[1, 2]]

    def test_times(self) -> None:
        assert found("aaaaa", step("a", is_in("a"), times=3)) == [[0, 1, 2]]
        assert found("aabab", step("a", is_in("a"), times=2), B) == [[0, 1, 2]]
        assert found("aaab", step("a", is_in("a"), times="+"), B) == [[0, 1, 2, 3]]
        assert found("aaab", step("a", is_in("a"), times=(1, 2)), B) == [[0, 1, 3]]
        assert found("aab", step("a", is_in("a"), times=(3, None)), B) == []

    def test_the_last_step_is_over_as_soon_as_it_may_be(self) -> None:
        assert found("abbb", A, step("b", is_in("b"), times=(2, 9))) == [[0, 1, 2]]

    def test_a_row_that_fits_both_goes_to_the_next_step(self) -> None:
        assert found("aab", step("any", lambda row: True, times="+"), B) == [[0, 1, 2]]
        assert found("bbb", step("any", lambda row: True, times=2), B) == [[0, 1, 2]]

    def test_absent(self) -> None:
        assert found("acb", A, absent("c", is_in("c")), B) == []
        assert found("aabacb", A, absent("c", is_in("c")), B) == [[0, 2]]
        assert found("cab", A, absent("c", is_in("c")), B) == [[1, 2]]
        assert found("ab", A, absent("b too", is_in("b")), B) == []

    def test_absent_after_the_last_step(self) -> None:
        """It comes out when the watermark says that nothing can come any more, or at the end."""
        rows = stream("axab", [0, 1, 5, 9], slack=0)
        result = rows.pattern(A, absent("b", is_in("b")), within=5, combine=numbers, name="p")
        assert out(result) == [[0]]
        assert found("xa", A, absent("b", is_in("b")), within=5) == [[1]]
        assert found("aa", A, absent("b", is_in("b")), within=5, overlap=True) == [[0], [1]]
        assert found("aab", A, absent("b", is_in("b")), within=5) == []

    def test_what_is_absent_comes_out_in_time_for_windows(self) -> None:
        result = stream("axxxxxxa").pattern(A, absent("b", is_in("b")), within=3, name="p")
        windows = result.window(2).count()
        windows.late.sink("late")
        assert [(w[0], w.count) for w in out(windows)] == [(2, 1), (8, 1)]

    def test_predicates_may_see_the_match(self) -> None:
        rising = step("higher", lambda row, match: row.n > match.last.n and row.x > match["first"][0].x, times=2)
        assert found("bacdb", step("first", lambda row: True), rising) == [[0, 2, 3]]

    def test_what_comes_out_by_default(self) -> None:
        result = stream("abab", [1, 2, 4, 8]).key_by("x").pattern(step("two", lambda row: True, times=2), within=10)
        assert result.type is not None
        assert [str(field.type) for field in result.type.schema] == ["string", "int64", "int64", "int64"]
        assert [row.asdict() for row in out(result)] == [
            {"x": "a", "start": 1, "end": 4, "rows": 2},
            {"x": "b", "start": 2, "end": 8, "rows": 2},
        ]

    def test_by_a_field_that_is_no_event_time(self) -> None:
        rows = [{"at": at, "x": x} for at, x in [(0, "a"), (9, "a"), (11, "b"), (12, "b")]]
        source = Flow("f").source("in", read.items(rows, schema={"at": int, "x": str}))
        result = source.pattern(A, B, within=10, time="at", name="p")
        assert [tuple(row) for row in out(result)] == [(9, 11, 2)]

    def test_a_row_that_fails_leaves_the_match_as_it_was(self) -> None:
        def is_b(row: Any) -> bool:
            if row.x == "!":
                raise ValueError("no letter")
            return bool(row.x == "b")

        result = stream("a!b").pattern(A, step("b", is_b), within=9, combine=numbers, name="p", on_error="dead_letter")
        result.errors.map(lambda letter: letter.error).sink("errors")
        assert out(result) == [[0, 2]]


# Any pattern over any rows ------------------------------------------------------------------------------------------


class Spec(NamedTuple):
    letters: str
    low: int
    high: int | None
    barred: str


@dataclass
class Search:
    """Look for matches from each row that a match may begin with, through lists of the rows that fit."""

    rows: list[tuple[int, str]]
    steps: list[Spec]
    within: int
    strict: bool

    def from_row(self, start: int) -> tuple[int, int, list[int]] | None:
        """Return (where it comes out: before this row, a number for its order, its rows); None if it does not."""
        first = self.rows[start][0]
        inside = [n for n in range(start, len(self.rows)) if self.rows[n][0] < first + self.within]
        if self.strict:
            following = range(start, len(self.rows))
            inside = [n for place, n in zip(following, inside, strict=False) if place == n]
        over = next((n for n in range(start, len(self.rows)) if self.rows[n][0] >= first + self.within), len(self.rows))
        taken: list[int] = []
        at = 0
        for number, spec in enumerate(self.steps):
            own = [n for n in inside[at:] if self.rows[n][1] in spec.letters]
            if len(own) < spec.low or (number == 0 and own[0] != start):
                return None
            least = own[: spec.low]
            if self.strict and least != inside[at : at + spec.low]:
                return None
            rest = [n for n in inside if n > least[-1]]
            barred = next((n for n in rest if self.rows[n][1] in spec.barred), len(self.rows))
            if number == len(self.steps) - 1:
                taken += least
                if not spec.barred:
                    return least[-1], -1, taken
                return None if barred < len(self.rows) else (over, first, taken)
            going = next((n for n in rest if self.rows[n][1] in self.steps[number + 1].letters), len(self.rows))
            if going >= barred:
                return None
            more = [n for n in own[spec.low :] if n < going][: None if spec.high is None else spec.high - spec.low]
            if self.strict and least + more != list(range(least[0], going)):
                return None
            taken += least + more
            at = inside.index(going) if going in inside else len(inside)
        return None

    def all(self, overlap: bool) -> Found:
        ready = [(*where, start) for start in range(len(self.rows)) if (where := self.from_row(start))]
        # What is known to be absent comes out before the row that says so, and before its own matches.
        ordered = sorted(ready, key=lambda each: (each[0], each[1] < 0, each[1], each[3]))
        if overlap:
            return [taken for *_, taken, _ in ordered]
        found, free = [], 0
        for place, order, taken, start in ordered:
            if start >= free:
                found.append(taken)
                free = place + (order < 0)
        return found


specs = st.builds(
    lambda letters, low, more, barred: Spec(letters, low, None if more > 2 else low + more, barred),
    st.sampled_from(["a", "b", "ab", "abc"]),
    st.integers(1, 3),
    st.integers(0, 3),
    st.sampled_from(["", "", "c", "bc"]),
)


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=14),
    steps=st.lists(specs, min_size=1, max_size=3),
    within=st.integers(1, 12),
    strict=st.booleans(),
    overlap=st.booleans(),
)
def test_as_a_search_would_find(
    rows: list[tuple[int, str]], steps: list[Spec], within: int, strict: bool, overlap: bool
) -> None:
    times, now = [], 0
    for pause, _ in rows:
        now += pause
        times.append(now)
    letters = "".join(x for _, x in rows)
    given: list[Any] = []
    for number, spec in enumerate(steps):
        given.append(step(f"s{number}", is_in(spec.letters), times=(spec.low, spec.high)))
        if spec.barred:
            given.append(absent(f"not {number}", is_in(spec.barred)))
    search = Search(list(zip(times, letters, strict=True)), steps, within, strict)
    assert found(letters, *given, within=within, times=times, strict=strict, overlap=overlap) == search.all(overlap)


async def never(row: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("steps", "options", "problem"),
    [
        ((), {}, "a pattern needs a step"),
        ((absent("x", is_in("a")), A), {}, "'x' is absent before the first step"),
        ((lambda row: True,), {}, "is no step; give ps.step"),
        ((step("x", 3),), {}, "takes a predicate for 'x'"),  # type: ignore[arg-type]
        ((step("x", never),), {}, "the predicate of 'x' cannot be async def"),
        ((A, A), {}, "two steps are named 'a'"),
        ((step("", is_in("a")),), {}, "name must be text, not ''"),
        ((step("x", is_in("a"), times=0),), {}, "times=0 of the step 'x'"),
        ((step("x", is_in("a"), times=(3, 2)),), {}, r"times=\(3, 2\) of the step 'x'"),
        ((step("x", is_in("a"), times="*"),), {}, r"times='\*' of the step 'x'"),
        ((A,), {"within": "10 s"}, "within='10 s' is a duration"),
        ((A,), {"within": 0}, "within=0 keeps nothing"),
        ((A,), {"time": "x"}, "time='x' is of type string"),
        ((A,), {"time": "y"}, "time names the field 'y'"),
        ((A, absent("b", is_in("b"))), {"time": "t"}, "is known by event time alone"),
        ((A,), {"schema": {"x": int}}, "schema= is for what combine= returns"),
    ],
)
def test_refusals(steps: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlowError, match=problem):
        stream("ab").pattern(*steps, **{"within": 5, "name": "p", **options})


def test_a_stream_without_time_is_refused() -> None:
    source = Flow("f").source("in", read.items([{"x": "a"}]))
    with pytest.raises(FlowError, match="a pattern without time= needs event time"):
        source.pattern(A, within=5)
