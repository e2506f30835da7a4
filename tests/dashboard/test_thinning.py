"""However long a run is, what is kept of it is bounded, and has its beginning and its last minutes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.dashboard.thinning import Thinned, thin


@given(st.integers(0, 3000), st.integers(1, 200), st.integers(300, 600))
def test_the_newest_stay_and_the_first(count, fresh, most):
    kept: Thinned[int] = Thinned(most, fresh)
    for number in range(count):
        kept.add(number)
    found = list(kept)
    assert len(found) <= most
    assert found[-fresh:] == list(range(count))[-fresh:]
    assert found[:1] == list(range(count))[:1]
    assert found == sorted(set(found))


def test_large_items_are_bounded_by_their_bytes():
    kept: Thinned[int] = Thinned(1000, most_bytes=10_000)
    for number in range(500):
        kept.add(number, 900)
    assert 2 <= len(kept) <= 11
    assert list(kept)[-1] == 499


def test_thinning_drops_every_second_of_the_older():
    assert thin(list(range(10)), 4) == [0, 2, 4, 6, 7, 8, 9]
    assert thin([1, 2], 4) == [1, 2]
