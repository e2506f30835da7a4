"""Where tasks are anchored follows the executors as they come and go."""

from __future__ import annotations

from unittest import mock

import pytest

from penstock.spark.anchors import Anchors


class Cluster:
    """Executors by name; those in `idle` are there, but take no tasks yet."""

    def __init__(self, *executors: str) -> None:
        self.executors, self.idle = set(executors), set[str]()
        self.made = 0
        context = mock.MagicMock()
        ids = context._jsc.sc.return_value.getExecutorIds.return_value.mkString
        ids.side_effect = lambda separator: separator.join(sorted(self.executors))
        self.anchors = Anchors(context)

    def epochs(self, count: int, tasks: int = 2) -> int:
        """Run epochs as `SparkBackend` does; return how often anchors were made."""
        before = self.made
        for _ in range(count):
            self.anchors.notice()
            if tasks not in self.anchors._frames:
                self.made += 1
                taking = len(self.executors - self.idle)
                with mock.patch.object(
                    self.anchors, "_places", return_value={str(i) for i in range(min(tasks, taking))}
                ):
                    self.anchors._frames[tasks] = self.anchors._make(mock.MagicMock(), tasks)
        return self.made - before


@pytest.fixture(autouse=True)
def no_spark():
    with mock.patch("pyspark.sql.functions.col"):
        yield


def test_they_are_made_once():
    assert Cluster("0", "1").epochs(100) == 1


def test_an_executor_that_goes_leaves_the_others_where_they_are():
    cluster = Cluster("0", "1")
    cluster.epochs(1)
    cluster.executors = {"0"}
    assert cluster.epochs(10) == 0


def test_one_that_comes_gets_its_part():
    cluster = Cluster("0")
    cluster.epochs(1)
    cluster.executors = {"0", "1"}
    assert cluster.epochs(10) == 1


def test_one_that_comes_in_the_place_of_another_gets_its_part():
    cluster = Cluster("0", "1")
    cluster.epochs(1)
    cluster.executors = {"0", "2"}
    assert cluster.epochs(10) == 1


def test_one_that_takes_no_tasks_yet_is_tried_ever_more_seldom():
    cluster = Cluster("0", "1")
    cluster.idle = {"1"}
    assert cluster.epochs(1000) <= 11
    cluster.idle = set()
    assert cluster.epochs(1100) == 1


def test_fewer_tasks_than_executors_are_not_crowded():
    assert Cluster("0", "1", "2", "3").epochs(100, tasks=2) == 1


def test_what_is_forgotten_is_given_back_even_where_spark_is_gone():
    cluster = Cluster("0")
    cluster.epochs(1)
    frame = cluster.anchors._frames[2]
    frame.unpersist.side_effect = RuntimeError("the JVM is gone")
    cluster.anchors.forget()
    frame.unpersist.assert_called_once()
    assert cluster.epochs(1) == 1
