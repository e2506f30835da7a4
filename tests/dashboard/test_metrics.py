"""Metrics in the text format of Prometheus: every line well formed, names escaped, no value of a row."""

from __future__ import annotations

import re

from penstock.dashboard.sampling import write_metrics

from .made_up import made_up_graph, made_up_sample

LINE = re.compile(r'^penstock_[a-z_]+\{([a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\} -?[0-9.e+-]+$')


def test_every_line_is_well_formed_and_counters_are_called_so():
    graph = made_up_graph(3, 2)
    text = write_metrics(made_up_sample(graph, shards=16, tasks=2))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    found = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            assert LINE.match(line), line
            found.add(line.partition("{")[0])
    assert found == set(kinds)
    assert {name for name, kind in kinds.items() if kind == "counter"} == {n for n in kinds if n.endswith("_total")}
    assert 'penstock_operator_rows_in_total{flow="made up",engine="spark",operator="operator 0"} 1000' in text
    assert 'penstock_latency_seconds{flow="made up",engine="spark",quantile="0.99"} 0.4' in text
    assert 'penstock_checkpoint_age_seconds{flow="made up",engine="spark"} 0.5' in text


def test_names_are_escaped():
    graph = made_up_graph(3, 1, lambda number: f'a"b\\c\nd{number}')
    text = write_metrics(made_up_sample(graph))
    assert 'operator="a\\"b\\\\c\\nd0"' in text
    assert all(LINE.match(line) for line in text.splitlines() if not line.startswith("#"))


def test_what_is_not_known_is_left_out():
    assert write_metrics({"flow": "f", "engine": "threads", "state": "done"}).splitlines()[-1] == (
        'penstock_up{flow="f",engine="threads"} 0'
    )
