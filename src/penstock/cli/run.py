"""Run the flow that a Python file defines, or one of the workloads that come with Penstock.

FILE.py holds a penstock.Flow in a variable, or a function that returns one (annotated `-> penstock.Flow`, or
named by FILE.py:name). Keep a `ps.run(flow)` of its own under `if __name__ == "__main__":`.
NAME is a workload (`penstock run --list` lists them); its options are given as `-o option=value`.

The run is kept in its checkpoint: run the same command again and it goes on where it left off. Ctrl-C stops it
behind the epoch under way, a second Ctrl-C at once; what was committed stays, and nothing is ever half written.
Progress and errors go to the standard error, rows of console sinks to the standard output.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from typing import Any, get_args

from penstock import lab
from penstock.cli import DONE, FAILED, UsageError, values
from penstock.cli.displays import Display, make_display
from penstock.cli.loading import describe_workloads, load_target
from penstock.cli.page import add_page_arguments, page_line, page_options
from penstock.cli.progress import Progress
from penstock.cli.stopping import Interrupts
from penstock.errors import did_you_mean
from penstock.flow import Flow
from penstock.operators.base import Sink
from penstock.pe.models.base import ModelName
from penstock.pe.stations import Partitioned
from penstock.plan import make_plan
from penstock.policies import POLICIES
from penstock.run import Run, start
from penstock.write import Memory

HELP = "run the flow of a Python file"
ENDED = (
    "; this checkpoint's run is at its end: its sources were read to the end and closed, so new rows are not read. Use "
    "follow=True or --no-end to go on later, or a new --checkpoint and new output directories"
)
ENGINE_OPTIONS = {
    "spark": ("checkpoint", "tasks", "every", "master"),
    "threads": ("model", "policy", "replicas", "partitioned", "batch_rows", "quantum", "binding", "reorder"),
}
TICK_SECONDS = 0.2
GRACE_SECONDS = 10.0
"""How long a run that must stop now may take to finish a commit that has begun."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "target",
        metavar="FILE.py[:name] | NAME",
        nargs="?",
        help="the file, and the flow in it if it has several; or the name of a workload",
    )
    parser.add_argument("--list", action="store_true", help="list the workloads, and end")
    parser.add_argument(
        "-o",
        "--option",
        dest="workload_options",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        help="an option of the workload; may be given several times",
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="where the run is kept (default: .penstock/<flow name>)")
    parser.add_argument(
        "--engine",
        choices=("spark", "threads", "sequential"),
        default="spark",
        help="threads runs in this process, without Java and without a checkpoint; sequential one row at a time",
    )
    parser.add_argument(
        "--threads",
        type=values.threads,
        metavar="N|utilization|streams-rules",
        help="workers of the threads engine (default: found while it runs, by throughput; utilization: by how busy "
        "they are; streams-rules: as Streams published it), or threads of each Spark task",
    )
    parser.add_argument("--model", choices=get_args(ModelName), help="threading model (default: dynamic)")
    parser.add_argument("--policy", choices=tuple(POLICIES), help="what chooses the next operator (default: Streams')")
    parser.add_argument(
        "--replicas",
        type=values.replicas,
        metavar="N|auto|NAME=N,...",
        help="replicas of every operator that can have some, or of some by name; auto finds how many",
    )
    parser.add_argument(
        "--partitioned", choices=get_args(Partitioned), help="how workers share keyed operators (default: hybrid)"
    )
    parser.add_argument(
        "--batch-rows",
        type=values.positive,
        metavar="N",
        help="rows of a batch (default: found from what rows take)",
    )
    parser.add_argument(
        "--binding", choices=tuple(lab.BINDINGS), help="what rebinds operators with --model bound (default: Penstock's)"
    )
    parser.add_argument(
        "--reorder", choices=tuple(lab.REORDERS), help="how batches are put back in order (default: without waiting)"
    )
    parser.add_argument("--quantum", metavar="TIME", help='how long a worker stays with an operator (default: "50 ms")')
    parser.add_argument(
        "--tasks", type=values.positive, metavar="N", help="tasks of the keyed stages (default: found while it runs)"
    )
    parser.add_argument(
        "--latency", metavar="TIME", help='how long a row may take, such as "2 s": the one knob of elasticity'
    )
    parser.add_argument(
        "--epoch-rows",
        type=values.positive,
        metavar="N",
        help="the most rows that an epoch reads from a source (default: 1000000)",
    )
    parser.add_argument("--every", metavar="TIME", help='the least time from epoch to epoch, such as 2 or "500 ms"')
    parser.add_argument("--master", metavar="URL", help="the Spark master (default: local[*,4])")
    parser.add_argument(
        "--no-end",
        dest="end",
        action="store_false",
        help="leave windows open when the sources are exhausted, for a later run",
    )
    add_page_arguments(parser)
    parser.add_argument(
        "--log",
        choices=("plain", "json"),
        help="log lines instead of the progress line; plain is the default when not on a terminal",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.list:
        print("\n".join(describe_workloads()))
        return DONE
    options = _options(args)
    flow = load_target(args.target, args.workload_options)
    _refuse_names(args.replicas, flow)
    progress = Progress(time.monotonic())
    display = make_display(args.log, progress, sys.stderr)
    session = None
    checkpoint = args.checkpoint or os.path.join(".penstock", flow.name)
    try:
        _warn_of_memory(flow, display)
        if args.engine == "spark":
            options["checkpoint"] = checkpoint
            display.say(
                "starting",
                f"flow {flow.name!r}, checkpoint {checkpoint}; starting Spark",
                flow=flow.name,
                checkpoint=checkpoint,
            )
            session = _session(flow, checkpoint, args.master)
        else:
            how = "one row at a time" if args.engine == "sequential" else "in this process"
            display.say("starting", f"flow {flow.name!r}, {how}", flow=flow.name)
        # From here on Ctrl-C is counted; until here it may simply end the command.
        with Interrupts() as interrupts:
            started = start(
                flow,
                engine=args.engine,
                spark=session,
                epoch_rows=args.epoch_rows,
                end=args.end,
                on_epoch=display.epoch,
                **options,
                **page_options(args, checkpoint),
            )
            if started.page is not None:
                display.say("page", page_line(started.page, args), address=started.page)
            try:
                return _watch(started, interrupts, display, progress, session, args.history or checkpoint)
            finally:
                started.close_page()
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        display.fail(error)
        return FAILED
    finally:
        display.close()


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """Read the options of `start` that only one engine has; refuse them for the others."""
    given = {name: getattr(args, name) for names in ENGINE_OPTIONS.values() for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    for engine, names in ENGINE_OPTIONS.items():
        wrong = [name for name in names if name in given]
        if args.engine != engine and wrong:
            raise UsageError(
                f"--{wrong[0].replace('_', '-')} needs --engine {engine}; this run is with --engine {args.engine}"
            )
    options = {name: value for name, value in given.items() if name not in ("checkpoint", "master")}
    options |= {name: getattr(args, name) for name in ("latency", "threads") if getattr(args, name) is not None}
    for name in {"every", "latency", "quantum"} & options.keys():
        options[name] = values.duration(options[name], f"--{name}")
    if args.threads is not None and (
        args.engine == "sequential" or (args.engine == "spark" and isinstance(args.threads, str))
    ):
        raise UsageError(f"--threads {args.threads} needs --engine threads; this run is with --engine {args.engine}")
    if isinstance(args.threads, str) and args.model not in (None, "dynamic"):
        raise UsageError(f"--threads {args.threads} needs --model dynamic; --model {args.model} has a fixed number")
    if args.binding is not None and args.model != "bound":
        raise UsageError(f"--binding {args.binding} needs --model bound; else operators belong to no worker")
    for name, known in (("threads", lab.LEVELS), ("binding", lab.BINDINGS), ("reorder", lab.REORDERS)):
        if options.get(name) in known:
            options[name] = known[options[name]]()  # what the papers compare with is handed in as an object
    return options


def _refuse_names(replicas: Any, flow: Flow) -> None:
    """Refuse replicas of operators that the flow has not."""
    for name in replicas if isinstance(replicas, dict) else ():
        if name not in flow.nodes:
            hint = did_you_mean(name, flow.nodes)
            there = f"{' ' if hint else '; '}there are {', '.join(flow.nodes)}"
            raise UsageError(f"--replicas: there is no operator {name!r}{hint}{there}")


def _session(flow: Flow, checkpoint: str, master: str | None) -> Any:
    from penstock.spark.outputs import check_directories
    from penstock.spark.session import make_session
    from penstock.store.identity import check_names

    plan = make_plan(flow)
    check_names(plan)  # a mistake is told at once, not after Spark has started
    check_directories(plan, checkpoint)
    return make_session(f"penstock: {flow.name}", master=master)


def _warn_of_memory(flow: Flow, display: Display) -> None:
    kept = [
        node.name
        for node in flow.nodes.values()
        if isinstance(node.operator, Sink) and isinstance(node.operator.writer, Memory)
    ]
    if kept:
        sinks = f"sink {kept[0]!r}" if len(kept) == 1 else f"the sinks {', '.join(map(repr, kept))}"
        display.say(
            "warning",
            f"the rows of {sinks} are kept in memory and end with this command; give a writer, such as "
            f"ps.write.parquet(...) or ps.write.console()",
            sinks=kept,
        )


def _watch(started: Run, interrupts: Interrupts, display: Display, progress: Progress, session: Any, kept: str) -> int:
    """Wait for the end, showing progress and obeying Ctrl-C; `kept` is where the run's history is."""
    stopping = False
    while True:
        try:
            if started.await_end(TICK_SECONDS):
                break
        except Exception:
            if interrupts.count < 2:
                raise
            break  # the job was cancelled: its epoch is not committed, as was asked for
        display.tick()
        if interrupts.count and not stopping:
            stopping = True
            started.stop()
            display.say("stopping", "stopping behind the epoch under way; Ctrl-C again stops now")
        if interrupts.count > 1:
            display.say("stopping", "stopping now; the epoch under way is left uncommitted")
            _stop_now(started, interrupts, session)
            break
    total = progress.total(time.monotonic())
    fields = {"epochs": progress.epochs, "rows_in": progress.rows_in, "rows_out": progress.rows_out}
    display.close()
    if interrupts.count:
        again = "" if session is None else "; the same command goes on from here"
        display.say("stopped", f"stopped: {total}{again}", **fields)
        return interrupts.code
    nothing = "" if progress.epochs or session is None else ENDED
    display.say("done", f"done: {total}{nothing}; see it again: penstock page {shlex.quote(kept)}", **fields)
    return DONE


def _stop_now(started: Run, interrupts: Interrupts, session: Any) -> None:
    """Cancel the job under way; a commit that has begun is given time to finish."""
    before, until = interrupts.count, time.monotonic() + GRACE_SECONDS
    while session is not None and started.running and time.monotonic() < until and interrupts.count == before:
        session.sparkContext.cancelAllJobs()
        try:
            started.await_end(TICK_SECONDS)
        except Exception:
            return
    if started.running:
        # As safe as a crash: what is not committed is run again, and committed epochs are whole.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(interrupts.code)
