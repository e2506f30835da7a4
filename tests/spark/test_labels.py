"""Spark's own page: jobs and stages are called by flow, epoch and operators."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.plan.plan import make_plan
from penstock.spark.shuffles import LETTERS, STAGE, job_label, stage_labels
from penstock.spark.stages import Stages


def add(total, row):
    return total + row.v, total


def sums(reader, name):
    flow = ps.Flow(name)
    flow.source("numbers", reader).key_by("k").scan(add, 0, name="sums", schema=int).sink("kept")
    return flow


def test_labels_name_the_operators_of_each_level():
    labels = stage_labels(Stages(make_plan(sums([{"k": 1, "v": 1}], "f"))))
    assert labels == ["numbers", "sums", "kept"]
    assert job_label("f", 3, labels) == "f: epoch 3 (numbers | sums | kept)"


def test_labels_of_many_operators_count_the_rest():
    stream = ps.Flow("long").source("in", [1])
    for i in range(100):
        stream = stream.map(lambda n: n, name=f"operator number {i}")
    labels = stage_labels(Stages(make_plan(stream.sink("out"))))
    assert len(labels[0]) <= LETTERS
    assert labels[0].startswith("in, operator number 0, ")
    assert labels[0].endswith(" more")


def jobs_of(spark, flow):
    """Return the description of each job of a flow that Spark knows of, with the names of its stages."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs, found = store.jobsList(None), {}
    for i in range(jobs.size()):
        job = jobs.apply(i)
        if job.description().isDefined() and job.description().get().startswith(f"{flow}: epoch"):
            ids = [job.stageIds().apply(j) for j in range(job.stageIds().size())]
            names = [store.lastStageAttempt(number).name() for number in sorted(ids)]
            found[job.description().get()] = names
    return found


@pytest.mark.spark
def test_spark_shows_the_names(spark):
    rows = [{"k": i % 3, "v": i} for i in range(6)]
    ps.run(sums(ps.read.items(rows), "labelled"), on=ps.Spark(spark, tasks=2))
    found = jobs_of(spark, "labelled")
    assert found["labelled: epoch 1 (numbers | sums | kept)"] == ["numbers", "sums", "kept"]
    # In the thread of the flow the name is taken back; in a user's own thread it never was.
    assert spark.sparkContext.getLocalProperty(STAGE) is None


@pytest.mark.spark
def test_spark_shows_the_names_of_a_dataframes_epochs(spark):
    frame = spark.createDataFrame([(i % 3, i) for i in range(6)], "k long, v long")
    ps.run(sums(ps.read.frame(frame), "framed"), on=ps.Spark(spark))
    names = [names for label, names in jobs_of(spark, "framed").items() if "numbers | sums | kept" in label]
    assert names
    assert all("numbers | sums | kept" in name for name in names[0])
