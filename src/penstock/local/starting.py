"""Read how a flow is to run in this process; refuse what cannot be, or what would do nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from penstock.elastic.base import Controller
from penstock.elastic.thread_level import ThreadStatistics
from penstock.errors import FlowError
from penstock.local.engine import LocalEngine, Options, SteeringName
from penstock.local.steering.rebinding import Binding
from penstock.order.reorder import MakeReorder
from penstock.pe.element import Settings
from penstock.pe.models.base import ModelName
from penstock.pe.stations import Partitioned
from penstock.plan import Plan
from penstock.policies import Policy, by_name
from penstock.statistics import FlowStats

Threads = int | Literal["utilization"] | Controller[Any, ThreadStatistics] | None
Replicas = int | Mapping[str, int] | Literal["auto"] | None


def make_engine(
    plan: Plan,
    listener: Callable[[FlowStats], None],
    *,
    end: bool,
    model: ModelName,
    threads: Threads,
    policy: str | Policy | None,
    replicas: Replicas,
    partitioned: Partitioned,
    batch_rows: int | None,
    quantum: float | None,
    latency: float | None,
    name_keys: bool,
    binding: Binding | None = None,
    reorder: MakeReorder | None = None,
) -> LocalEngine:
    """Make the engine that the options of `penstock.start` ask for."""
    level, threads = _level(threads, model, latency)
    pool: frozenset[SteeringName] = frozenset({"pool"}) if threads == "utilization" else frozenset()
    if pool and model != "dynamic":
        raise FlowError(f'threads="utilization" needs model="dynamic"; model={model!r} has the threads that it has')
    threads = None if threads == "utilization" else threads
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise FlowError(f'threads={threads!r}; a flow needs at least one, or leave it out, or give "utilization"')
    if batch_rows is not None and batch_rows < 1:
        raise FlowError(f"batch_rows={batch_rows}; a batch needs at least one row")
    if model not in get_args(ModelName):
        raise FlowError(f"there is no threading model {model!r}; use {', '.join(get_args(ModelName))}")
    if quantum is not None and quantum < 0:
        raise FlowError(f"quantum={quantum} seconds; give a time such as '50 ms', or 0 to change as often as can be")
    if quantum is not None and model not in ("dynamic", "bound"):
        raise FlowError(
            f'quantum= needs model="dynamic" or "bound"; with model={model!r} no worker chooses between operators'
        )
    try:
        chosen = by_name(policy) if isinstance(policy, str) else policy
    except ValueError as error:
        raise FlowError(str(error)) from None
    if latency is not None and model not in ("dynamic", "dedicated"):
        raise FlowError(f'latency= needs model="dynamic" or "dedicated"; model={model!r} has no full queues')
    if latency is not None and model == "dedicated":
        if replicas not in (None, "auto"):
            raise FlowError("latency= finds the replicas of operators by itself; leave out replicas=")
        replicas = "auto"
    bound = _binding(binding, model)
    settings = Settings(model=model, workers=threads or 1, policy=chosen, barrier=bound.barrier)
    if reorder is not None:
        if not callable(reorder):
            raise FlowError(f"reorder={reorder!r} makes no buffer; give lab.Locked(), or leave it out")
        settings = dataclasses.replace(settings, reorder=reorder)
    if quantum is not None:
        settings = dataclasses.replace(settings, quantum=quantum)
    settings, steer = _shared_out(settings, replicas, partitioned)
    elastic = threads is None and model == "dynamic"
    found: dict[SteeringName, bool] = {
        "waits": True,
        "batches": batch_rows is None and (elastic or latency is not None),
        # Where every replica has a thread of its own, replicas are cores; else workers are.
        "cores": latency is not None and model == "dedicated",
    }
    steer = steer.union(pool, _wanted(found))
    if bound.controller is None:
        steer -= {"rebinding"}
    options = Options(
        batch_rows, end, settings, elastic, steer, latency=latency, name_keys=name_keys, binding=bound, level=level
    )
    return LocalEngine(plan, options, listener)


def _level(
    threads: Threads, model: ModelName, latency: float | None
) -> tuple[Controller[Any, ThreadStatistics] | None, int | Literal["utilization"] | None]:
    """Return what finds the number of workers, where it is handed in, and the number otherwise."""
    if threads is None or isinstance(threads, (int, str)):
        return None, threads
    if not (hasattr(threads, "start") and hasattr(threads, "step")):
        raise FlowError(
            f'threads={threads!r}; give a number, "utilization", or what finds the number, such as lab.StreamsRules()'
        )
    if model != "dynamic":
        raise FlowError(f'threads={threads!r} needs model="dynamic"; model={model!r} has the threads that it has')
    if latency is not None:
        raise FlowError(f"latency= is for Penstock's own rule of how many threads there are; leave out {threads!r}")
    return threads, None


def _binding(binding: Binding | None, model: ModelName) -> Binding:
    """Return how operators are bound to workers."""
    if binding is None:
        return Binding()
    if not isinstance(binding, Binding):
        raise FlowError(f"binding={binding!r}; give lab.Static(), lab.Greedy() or lab.Barrier(), or leave it out")
    if model != "bound":
        raise FlowError(f'binding= needs model="bound"; with model={model!r} operators belong to no worker')
    return binding


def _shared_out(
    settings: Settings, replicas: Replicas, partitioned: Partitioned
) -> tuple[Settings, frozenset[SteeringName]]:
    """Return the settings with replicas and partitions as they are asked for, and what is to be found while it runs."""
    if partitioned not in get_args(Partitioned):
        raise FlowError(f"there is no partitioned={partitioned!r}; use {', '.join(get_args(Partitioned))}")
    if replicas is not None and replicas != "auto" and not isinstance(replicas, (int, Mapping)):
        raise FlowError(f'replicas={replicas!r}; give "auto", a number, or the number for each operator by name')
    if replicas == "auto" and settings.model not in ("dynamic", "dedicated"):
        raise FlowError(
            f'replicas="auto" needs model="dynamic" or "dedicated"; model={settings.model!r} has no full queues'
        )
    count = 1 if replicas == "auto" else {} if replicas is None else replicas
    found: dict[SteeringName, bool] = {
        "replicas": replicas == "auto",
        "shards": partitioned == "executor" or replicas == "auto",
        "rebinding": settings.model == "bound",
    }
    return dataclasses.replace(settings, replicas=count, partitioned=partitioned), _wanted(found)


def _wanted(found: Mapping[SteeringName, bool]) -> frozenset[SteeringName]:
    return frozenset(name for name, wanted in found.items() if wanted)
