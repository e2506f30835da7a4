"""A checkpoint that was written when modules had other names goes on."""

from __future__ import annotations

import importlib
import pickle
import re

import pytest

import penstock as ps
from penstock.rows.keys import NAN
from penstock.store.old_names import MOVED, current, unpickled
from penstock.store.state_files import apply_block

from ..spark.running import assert_as_sequential, run_inline
from .old_flow import old_flow, opened


def test_it_goes_on_where_it_was(tmp_path):
    checkpoint = opened(tmp_path)
    run_inline(old_flow(tmp_path / "data", tmp_path / "out"), checkpoint, epoch_rows=20)
    assert_as_sequential(old_flow(tmp_path / "data", tmp_path / "out"), tmp_path / "out", checkpoint)


def test_its_state_is_read_by_hand(tmp_path):
    checkpoint = str(opened(tmp_path))
    assert ps.state.epochs(checkpoint) == [1, 2, 3]
    row, _ = ps.state.values(checkpoint, "running")[0]
    assert isinstance(row, ps.Record)


def test_it_holds_the_names_of_then(tmp_path):
    files = [path.read_bytes() for path in (opened(tmp_path) / "state").iterdir()]
    names = {name.decode() for content in files for name in re.findall(rb"penstock\.[a-z_.]+", content)}
    assert {"penstock.rows", "penstock.workloads.mobile_fraud", "penstock.operators.windows"} <= names


def test_the_nan_that_distinct_kept_is_that_of_keys():
    assert unpickled(b"cpenstock.operators.aggregates\nNAN\n.") is NAN


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_leads_somewhere(old):
    importlib.import_module(MOVED[old].rstrip("."))


def test_a_name_is_looked_for_whole_or_by_its_package(monkeypatch):
    monkeypatch.setitem(MOVED, "old.rows", "old.rows.records")
    monkeypatch.setitem(MOVED, "old.demo.", "new.demo.")
    names = ["old.rows", "old.rows.records", "old.demo", "old.demo.flow", "new.demo.flow"]
    assert [current(name) for name in names] == [
        "old.rows.records",
        "old.rows.records",
        "old.demo",
        "new.demo.flow",
        "new.demo.flow",
    ]


def test_a_module_may_have_moved_twice():
    stocks = "lab.workloads.stock_exchange"
    assert current("penstock.workloads.stock_exchange.moving_average") == f"penstock.{stocks}.statistics"
    assert current(f"penstock.{stocks}.spread") == f"penstock.{stocks}.events"


def test_what_is_gone_is_refused_in_words():
    data = pickle.dumps(({1: ps.agg.count}, [])).replace(b"count", b"cound")
    with pytest.raises(ps.CheckpointError, match="holds a class that is gone"):
        apply_block({}, data, "a file")
    assert unpickled(pickle.dumps({1: 2})) == {1: 2}
