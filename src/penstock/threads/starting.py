"""Open the threads engine as `ps.Threads` says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.elastic.rebinding import Binding
from penstock.options import Options, Threads
from penstock.plan.plan import Plan
from penstock.rows.timing import seconds
from penstock.statistics import FlowStats
from penstock.threads.engine import LeverName, LocalEngine
from penstock.threads.engine import LocalOptions as Setup
from penstock.threads.policies import by_name
from penstock.threads.settings import Settings


def open_engine(plan: Plan, on: Threads, options: Options, listener: Callable[[FlowStats], None]) -> LocalEngine:
    """Make the engine, and decide what is found while it runs: what is not said."""
    target, binding = options.target, on.binding or Binding()
    workers, level = None, None
    if isinstance(on.workers, int):
        workers = on.workers
    elif not isinstance(on.workers, str):
        level = on.workers
    # Where every replica has a thread of its own, replicas are cores; else workers are.
    cores = target is not None and on.model == "dedicated"
    auto = on.replicas == "auto" or cores
    elastic = workers is None and on.model == "dynamic"
    steered: dict[LeverName, bool] = {
        "waits": True,
        "pool": on.workers == "utilization",
        "batches": on.batch_rows is None and (elastic or target is not None),
        "cores": cores,
        "replicas": auto,
        "shards": on.partitioned == "executor" or auto,
        "rebinding": on.model == "bound" and binding.controller is not None,
    }
    settings = Settings(
        model=on.model,
        workers=workers or 1,
        policy=by_name(on.policy) if isinstance(on.policy, str) else on.policy,
        partitioned=on.partitioned,
        replicas=1 if auto or on.replicas == "auto" else {} if on.replicas is None else on.replicas,
        barrier=binding.barrier,
    )
    if on.reorder is not None:
        settings = replace(settings, reorder=on.reorder)
    if on.quantum is not None:
        settings = replace(settings, quantum=seconds(on.quantum, "quantum"))
    setup = Setup(
        on.batch_rows,
        options.end,
        settings,
        elastic,
        frozenset(name for name, wanted in steered.items() if wanted),
        latency=target,
        name_keys=options.name_keys,
        binding=binding,
        level=level,
    )
    return LocalEngine(plan, setup, listener)
