"""How many executors and tasks there may be follows the cluster and its settings, without Spark."""

from __future__ import annotations

from unittest import mock

import pytest

from penstock.elastic.decisions import from_json, replay, to_json
from penstock.plan.plan import make_plan
from penstock.rows.keys import SHARDS
from penstock.spark.pilot import EpochPilot, EpochSetup, UserLimits
from penstock.spark.session import Executors
from penstock.spark.stages import Stages
from penstock.statistics import FlowStats, OperatorStats

from .piloting import scanned

DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


class Cluster:
    """An application with settings, and executors that come and go; an executor that is asked for comes at once."""

    def __init__(self, *, here: int = 0, cores: int = 8, **settings: str) -> None:
        self.here, self.cores = here, cores
        context = mock.MagicMock()
        context.getConf.return_value.get.side_effect = settings.get
        scala = context._jsc.sc.return_value
        scala.getExecutorIds.return_value.mkString.side_effect = lambda separator: separator.join(
            str(number) for number in range(self.here)
        )
        scala.statusStore.return_value.executorList.side_effect = self._listed
        scala.requestTotalExecutors.side_effect = lambda count, *_: setattr(self, "here", count)
        self.executors = Executors(context)

    def _listed(self, active: bool) -> mock.MagicMock:
        """List the executors as Spark does, with the driver."""
        listed = [mock.Mock(**{"id.return_value": "driver", "totalCores.return_value": 0})]
        listed += [
            mock.Mock(**{"id.return_value": str(number), "totalCores.return_value": self.cores})
            for number in range(self.here)
        ]
        return mock.MagicMock(**{"size.return_value": len(listed), "apply.side_effect": listed.__getitem__})


class TestBounds:
    def test_nothing_is_known_before_the_first_has_come(self):
        assert Cluster().executors.most_tasks is None

    def test_those_that_come_later_count(self):
        cluster = Cluster()
        cluster.here = 1
        assert (cluster.executors.most, cluster.executors.most_tasks) == (1, 8)
        cluster.here = 10
        assert (cluster.executors.most, cluster.executors.most_tasks) == (10, 80)

    def test_those_that_have_gone_can_be_asked_for_again(self):
        cluster = Cluster(here=2)
        assert cluster.executors.most == 2
        cluster.executors.change(1)
        assert (len(cluster.executors.found()), cluster.executors.most) == (1, 2)

    @pytest.mark.parametrize(
        ("settings", "most"),
        [
            ({"spark.executor.instances": "6"}, 6),
            ({"spark.cores.max": "40", "spark.executor.cores": "8"}, 5),
            ({"spark.cores.max": "40"}, 1),  # how large an executor is, is up to the workers
            ({"spark.dynamicAllocation.maxExecutors": "7"}, 7),
            ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "7", "spark.executor.instances": "2"}, 7),
            (DYNAMIC, SHARDS),  # no limit but that each has a shard
            ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "2147483647"}, SHARDS),
        ],
    )
    def test_settings_allow_what_has_not_come_yet(self, settings, most):
        assert Cluster(here=1, **settings).executors.most == most

    def test_settings_alone_tell_the_tasks(self):
        settings = {"spark.executor.instances": "6", "spark.executor.cores": "4"}
        assert Cluster(**settings).executors.most_tasks == 24


class Play:
    """Play epochs of 256 rows to the pilot of a cluster, which share `work` seconds among tasks and cores."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        work: float = 100.0,
        latency: float | None = None,
        tables: dict[str, list[int]] | None = None,
    ) -> None:
        self.cluster, self.work, self.epoch = cluster, work, 0
        self.stages, self.limits = Stages(make_plan(scanned())), UserLimits(latency=latency)
        self.pilot = EpochPilot(
            self.stages, self.limits, cores=self.cores, executors=cluster.executors, tables=tables or {}, epoch=0
        )

    @property
    def cores(self) -> int:
        """Return what Spark says: two before any executor has come."""
        return self.cluster.executors.cores or 2

    def run(self) -> EpochSetup:
        self.epoch += 1
        setup = self.pilot.choose(self.limits, SHARDS, self.cores, self.epoch)
        self.cluster.here = max(1, self.cluster.here)  # Spark waits for the first with the first job
        tasks = setup.tasks[1]
        seconds = 0.1 + self.work / min(tasks, self.cores)
        stages = {0: [(0.0, 0.0)], 1: [(self.work / tasks,) * 2] * tasks, 2: [(0.0, 0.0)]}
        operators = {name: OperatorStats(rows_in=SHARDS) for name in self.stages.plan.nodes}
        self.pilot.observe(
            FlowStats(
                float(self.epoch),
                seconds,
                SHARDS,
                operators=operators,
                backlog=0,
                knows_backlog=True,
                computed=self.work,
                task_seconds=self.work,
                tasks=max(setup.tasks),
                job_seconds=seconds,
                attempts=1,
                epoch=self.epoch,
                stage_tasks=setup.tasks,
                stage_times=stages,
                stage_seconds={1: seconds},
            )
        )
        return setup

    def changes(self) -> list[tuple[object, object]]:
        """Return what was decided about executors."""
        return [(line.before, line.after) for line in self.pilot.decisions if line.what == "executors"]

    def can_be_replayed(self) -> bool:
        return replay(from_json(to_json(line)) for line in self.pilot.decisions).same


class TestPilot:
    def test_executors_that_come_behind_the_start_get_tasks(self):
        play = Play(Cluster())
        play.run()
        play.cluster.here = 10
        chosen = [play.run().tasks[1] for _ in range(20)]
        assert chosen[0] == 80  # one task a core, until more is known
        assert chosen[-1] == 80
        assert play.can_be_replayed()

    def test_executors_that_come_once_tasks_were_chosen_get_tasks_too(self):
        play = Play(Cluster(here=1))
        for _ in range(20):
            few = play.run().tasks[1]
        play.cluster.here = 10
        for _ in range(30):
            many = play.run().tasks[1]
        assert (few, many) == (8, 80)
        assert play.can_be_replayed()

    def test_one_that_was_given_back_is_asked_for_again(self):
        play = Play(Cluster(), work=1.0, latency=60.0)
        play.run()
        play.cluster.here = 2
        for _ in range(12):
            play.run()
        assert play.changes() == [(2, 1)]
        play.work = 300.0  # 37.5 s with one executor of 8 cores; half of the target is 30 s
        for _ in range(5):
            play.run()
        assert play.changes() == [(2, 1), (1, 2)]
        assert play.can_be_replayed()

    def test_tasks_of_a_checkpoint_are_kept_until_the_cluster_is_known(self):
        play = Play(Cluster(), tables={"counted": [shard % 64 for shard in range(SHARDS)]})
        first, second = play.run().tasks[1], play.run().tasks[1]
        assert (first, second) == (64, 8)
        assert play.can_be_replayed()

    def test_with_dynamic_allocation_there_are_tasks_for_executors_that_have_not_come(self):
        """Spark asks for executors where tasks wait for one."""
        play = Play(Cluster(here=1, **DYNAMIC))
        assert max(play.run().tasks[1] for _ in range(20)) == 16

    def test_no_stage_gets_more_tasks_than_shards(self):
        play = Play(Cluster(here=100, **DYNAMIC))
        assert max(play.run().tasks[1] for _ in range(20)) <= SHARDS
