"""Test the statistics that every benchmark's claims rest on."""

import numpy as np
import pytest

from bench import measure


def test_interleave_alternates_and_leaves_the_warmup_out() -> None:
    calls: list[str] = []

    def side(name: str) -> int:
        calls.append(name)
        return len(calls)

    samples = measure.interleave({"a": lambda: side("a"), "b": lambda: side("b")}, rounds=2, warmup=1)

    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert samples == {"a": [3, 5], "b": [4, 6]}


def test_interleave_without_rounds_gives_no_samples() -> None:
    assert measure.interleave({"a": lambda: 1}, rounds=0) == {"a": []}


def test_median_of_one_value_is_that_value_and_its_whole_interval() -> None:
    assert measure.median([7.0]) == measure.Estimate(7.0, 7.0, 7.0, 1)


def test_median_lies_in_its_interval_and_the_interval_in_the_values() -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    estimate = measure.median(values)
    assert estimate.median == pytest.approx(2.8)
    assert min(values) <= estimate.low <= estimate.median <= estimate.high <= max(values)
    assert estimate.n == 6


def test_median_ignores_an_outlier() -> None:
    assert measure.median([1.0] * 20 + [1000.0]).high == 1.0


def test_median_is_repeatable_by_its_seed() -> None:
    values = list(np.random.default_rng(5).random(9))
    assert measure.median(values, seed=1) == measure.median(values, seed=1)


def test_wider_confidence_gives_a_wider_interval() -> None:
    values = list(np.random.default_rng(5).random(30))
    narrow, wide = measure.median(values, confidence=0.5), measure.median(values, confidence=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for number in range(200):
        estimate = measure.median(list(rng.lognormal(size=25)), seed=number)
        held += estimate.low <= 1.0 <= estimate.high
    assert 180 <= held <= 199


def test_ratio_pairs_cancel_a_drift_that_both_sides_share() -> None:
    drift = [1.0, 3.0, 0.5, 8.0, 2.0]
    estimate = measure.ratio([6 * each for each in drift], [2 * each for each in drift])
    assert estimate == measure.Estimate(3.0, 3.0, 3.0, 5)


def test_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    assert measure.ratio([1.0, 2.0, 9.0], [1.0, 4.0, 3.0]).median == 1.0


def test_ratio_refuses_sides_of_unequal_length() -> None:
    with pytest.raises(ValueError, match="2 numerators do not pair with 1"):
        measure.ratio([1.0, 2.0], [1.0])


def test_median_refuses_no_values() -> None:
    with pytest.raises(ValueError, match="no values"):
        measure.median([])


def test_estimate_as_dict_is_plain_numbers() -> None:
    assert measure.median([2.0, 2.0]).as_dict() == {"median": 2.0, "low": 2.0, "high": 2.0, "n": 2}
