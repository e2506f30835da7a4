"""Check what work is expected to cost, from many measurements, two, or one."""

import pytest

from penstock.elastic.costs import Costs, Sample, fit, line, split


def test_many_measurements_tell_all_three_costs() -> None:
    costs = Costs(0.2, 0.02, 5e-6)
    found = fit([Sample(n, rows, costs.seconds(n, rows, 4), 4) for n in (1, 2, 4) for rows in (10_000, 200_000)])
    assert (found.fixed, found.per_task, found.per_row) == pytest.approx((0.2, 0.02, 5e-6), rel=0.01)


def test_two_sizes_tell_what_is_fixed_and_one_does_not() -> None:
    assert line([(100, 2.0), (200, 3.0)]) == Costs(fixed=1.0, per_row=0.01)
    assert line([(100, 2.0)]) == Costs(fixed=2.0)
    # Larger ones that are faster: nothing is for the rows.
    assert line([(100, 2.0), (200, 1.0)]) == Costs(fixed=1.0)


def test_what_cores_do_not_share_is_fixed() -> None:
    costs = split(1.0, work=1.6, cores=2)
    assert costs.fixed == pytest.approx(0.2)
    assert costs.seconds(4, 1, 4) == pytest.approx(0.6)
    assert split(0.1, work=1.6, cores=2).fixed == 0.0
