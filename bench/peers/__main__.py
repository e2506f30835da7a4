"""Run one workload with one alternative: `python -m bench.peers PEER WORKLOAD --data DIR --rows N`.

The last line is a report in JSON. It is started by `python -m bench run all_peers`, in the environment of the peer.
"""

import argparse
import importlib
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.peers.apart import CHECKS, Task


def report(peer: str, workload: str, task: Task) -> dict[str, Any]:
    """Run a workload, check its outputs, and tell how fast it was."""
    module = importlib.import_module(f"bench.peers.{peer}_peer")
    began = time.perf_counter()
    outcome = module.WORKLOADS[workload](task)
    seconds = time.perf_counter() - began
    rows, counted = outcome.steady or (task.rows, seconds)
    return {
        "version": version(module.PACKAGE) if module.PACKAGE else sys.version.split()[0],
        "rows_s": rows / counted,
        "seconds": seconds,
        "steady": outcome.steady is not None,
        "note": outcome.note,
        **CHECKS[workload[:2]](task, outcome),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("workload")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--wait-ms", type=float, default=2.0)
    parser.add_argument("--in-flight", type=int, default=64)
    args = parser.parse_args()
    task = Task(sorted(args.data.glob("*.parquet")), args.rows, args.wait_ms / 1000, args.in_flight)
    print(json.dumps(report(args.peer, args.workload, task)), flush=True)


if __name__ == "__main__":
    main()
