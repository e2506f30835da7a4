"""Every operator that comes with Penstock survives the harness."""

from __future__ import annotations

import pytest

from penstock.testing import torture

from .library_flows import ONE_INPUT, ROWS, TWO, TWO_INPUTS


@pytest.mark.parametrize("stage", ONE_INPUT.values(), ids=ONE_INPUT)
def test_one_input(stage):
    assert torture(stage, ROWS, time="at", most=8) is not None


@pytest.mark.parametrize("stage", TWO_INPUTS.values(), ids=TWO_INPUTS)
@pytest.mark.parametrize("order", [{"order_by": "at"}, {}], ids=["by time", "source by source"])
def test_two_inputs(stage, order):
    assert torture(stage, TWO, time="at", most=8, **order) is not None
