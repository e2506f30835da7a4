"""What `make test` leaves to `make chaos` is never a whole row or column of a table of tests."""

from __future__ import annotations

from tests.in_turn import few_of, one_of_each


def quick(parameters):
    return [each.values for each in parameters if not each.marks]


def test_every_row_and_every_column_is_run():
    listed = one_of_each("abcde", [1, 2, 3])
    assert [each.values for each in listed] == [(row, column) for row in "abcde" for column in (1, 2, 3)]
    assert quick(listed) == [("a", 1), ("b", 2), ("c", 3), ("d", 1), ("e", 2)]
    assert listed[0].id == "a-1"


def test_the_first_seeds_are_run_and_the_others_are_slow():
    first, *others = few_of(range(3), 1)
    assert first == 0
    assert [(each.values, [mark.name for mark in each.marks]) for each in others] == [
        ((1,), ["slow"]),
        ((2,), ["slow"]),
    ]
