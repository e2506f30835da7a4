"""Each option is said once: what is refused, how old spellings are answered, and the page that is made from them."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import lab
from penstock.annotated import options_of
from penstock.cli.loading import as_flags
from penstock.errors import FlowError, PenstockError
from penstock.options import ENGINES, Options
from penstock.run import Change

from .how import how

ROOT = Path(__file__).parents[1]


def flow() -> ps.Flow:
    return ps.Flow("options").source("in", [1, 2]).map(lambda n: n + 1, name="more").sink("out")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"engine": "threads"}, "on=ps.Threads())"),
        ({"engine": "sequential", "epoch_rows": 5}, "on=ps.Sequential(epoch_rows=5))"),
        ({"engine": "threads", "threads": 2, "model": "bound"}, "on=ps.Threads(workers=2, model='bound'))"),
        ({"spark": object(), "tasks": 2, "threads": 3}, "on=ps.Spark(session=..., tasks=2, threads=3))"),
        ({"threads": 2}, "on=ps.Spark(threads=2))"),
        ({"quantum": "1 ms", "page": 0}, "on=ps.Threads(quantum='1 ms'))"),
        ({"engine": "threads", "tasks": 2}, "'tasks'; write on=ps.Spark(tasks=...)"),
        ({"engine": "threads", "epoch_rows": 5}, "'epoch_rows'; write on=ps.Spark(epoch_rows=...)"),
        ({"replica": 2}, "'replica'; did you mean 'replicas'?"),
        ({"engine": "storm"}, "on=ps.Spark())"),
    ],
)
@pytest.mark.parametrize("function", ["run", "start"])
def test_old_keywords_are_refused_with_the_new_spelling(function, old, new):
    with pytest.raises(TypeError) as caught:
        getattr(ps, function)(flow(), **old)
    assert str(caught.value).startswith(f"ps.{function} has no option ")
    assert str(caught.value).endswith(new)


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("spark", {"tasks": 0}, "tasks=0; it must be 1 or more"),
        ("spark", {"tasks": True}, "tasks=True; give a whole number, 1 or more"),
        ("spark", {"threads": "utilization"}, "threads='utilization'; give a whole number, 1 or more"),
        ("spark", {"every": "soon"}, "every='soon' is no duration"),
        ("spark", {"epoch_rows": 0}, "epoch_rows=0; it must be 1 or more"),
        ("spark", {"session": object(), "master": "local"}, "master= is for a new session"),
        ("spark", {"latency": "0 s"}, "latency='0 s'; it must be a time"),
        ("spark", {"history": True}, "history=True keeps the history in the checkpoint"),
        ("spark", {"page": 70_000}, "page=70000; it must be 0 to 65,535"),
        ("spark", {"checkpoint": 5}, "give text"),
        ("spark", {"on_epoch": "print"}, "on_epoch='print'; give a function"),
        ("threads", {"checkpoint": "x"}, "checkpoint= needs on=ps.Spark(...); this run is with on=ps.Threads(...)"),
        ("threads", {"workers": 2.5}, 'workers=2.5; give a whole number, 1 or more, or "utilization", or what finds'),
        ("threads", {"workers": lab.StreamsRules(), "model": "bound"}, "workers=StreamsRules needs model="),
        ("threads", {"replicas": {"more": 0}}, "replicas=0; it must be 1 or more"),
        ("threads", {"replicas": {"more": "2"}}, "replicas='2'; give a whole number"),
        ("threads", {"policy": 3}, "policy=3; give"),
        ("threads", {"latency": 1, "model": "manual"}, 'latency= needs model="dynamic" or model="dedicated"'),
        ("sequential", {"latency": 1}, "latency= needs on=ps.Spark(...) or on=ps.Threads(...); this run is with"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(engine, options, message):
    with pytest.raises(FlowError) as caught:
        ps.run(flow(), **how(engine, **options))
    assert message in str(caught.value)


@pytest.mark.parametrize("on", ["threads", ps.Threads, None])
def test_on_is_an_engine(on):
    with pytest.raises(FlowError, match=r"give ps\.Spark\(\.\.\.\), ps\.Threads\(\.\.\.\) or ps\.Sequential"):
        ps.run(flow(), on=on)


def test_names_that_are_on_the_command_line_are_handed_in_as_objects_here():
    for name, names in lab.NAMES.items():
        for known, make in names.items():
            with pytest.raises(FlowError, match=f"{name}="):
                ps.Threads(**{name: known, "model": "bound" if name == "binding" else "dynamic"})
            options_of(ps.Threads)[name].check(make())


def test_refusals_are_said_as_flags():
    said = 'batch_rows= needs model="bound"; on=ps.Threads(...) has workers=2, and replicas="auto" not'
    assert (
        as_flags(said) == "--batch-rows needs --model bound; --engine threads has --workers 2, and --replicas auto not"
    )


def test_the_signature_is_that_of_the_options():
    for function in (ps.run, ps.start):
        first, *others = inspect.signature(function).parameters
        assert (first, others) == ("flow", list(options_of(Options)))


def test_no_option_of_an_engine_has_the_name_of_a_common_one_and_all_are_described():
    for kind in (Options, *ENGINES.values()):
        for option in options_of(kind).values():
            assert option.about.help
            assert option.wanted()
            option.check(option.default)
        assert kind is Options or not options_of(kind).keys() & options_of(Options).keys()


def test_the_page_of_the_options_is_made_from_them():
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "docs" / "options_page.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert (ROOT / "docs" / "options.md").read_text() == made.page(), "run: python docs/options_page.py"


class TestEngines:
    """What an engine cannot be asked for is declared, and refused with what can."""

    CALLS: tuple[tuple[str, tuple[Any, ...], str], ...] = (
        ("set_tasks", (2,), "tasks come and go only with on=ps.Spark"),
        ("set_table", ("more", [0]), "shards have a table only with on=ps.Spark"),
        ("set_threads", (2,), "threads come and go only with on=ps.Threads"),
        ("set_replicas", ("more", 2), "replicas come and go only with on=ps.Threads"),
        ("add_query", ("out",), "queries come and go only with on=ps.Threads"),
        ("cancel_query", ("out",), "queries come and go only with on=ps.Threads"),
    )

    @pytest.mark.parametrize(("method", "arguments", "message"), CALLS)
    def test_a_sequential_run_cannot_be_changed(self, method, arguments, message):
        run = ps.run(flow(), on=ps.Sequential())
        assert run.engine.changes == frozenset()
        with pytest.raises(PenstockError, match=message):
            getattr(run, method)(*arguments)
        assert run.stats.rows_in == 2
        assert run.decisions == []

    def test_threads_refuse_what_only_spark_can(self):
        run = ps.run(flow(), on=ps.Threads())
        for method, arguments, message in self.CALLS[:2]:
            with pytest.raises(PenstockError, match=message):
                getattr(run, method)(*arguments)

    def test_every_change_has_an_engine_that_declares_it(self):
        from penstock.spark.engine import SparkEngine
        from penstock.threads.engine import LocalEngine

        assert LocalEngine.changes | SparkEngine.changes == set(Change.__args__)
