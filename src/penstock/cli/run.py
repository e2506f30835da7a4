"""Run the flow that a Python file defines, or one of the workloads that come with Penstock.

FILE.py holds a penstock.Flow in a variable, or a function that returns one (annotated `-> penstock.Flow`, or
named by FILE.py:name). Keep a `ps.run(flow)` of its own under `if __name__ == "__main__":`.
NAME is a workload (`penstock run --list` lists them); its options are given as `-o option=value`.

The run is kept in its checkpoint: run the same command again and it goes on where it left off. Ctrl-C stops it
after the epoch under way, a second Ctrl-C at once; what was committed stays, and nothing is ever half written.
Progress and errors go to the standard error, rows of console sinks to the standard output.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import time
from dataclasses import replace
from typing import Any

from penstock.annotated import options_of
from penstock.cli import DONE, FAILED, UsageError
from penstock.cli.displays import Display, Interrupts, LogRecords, Progress, make_display
from penstock.cli.loading import add_flags, add_target, as_flags, describe_workloads, load_target
from penstock.cli.page import page_line
from penstock.elastic.decisions import HOLD, START
from penstock.errors import FlowError, did_you_mean
from penstock.flow import Flow
from penstock.operators.base import Sink
from penstock.options import ENGINES, Options, Sequential, Spark, Threads
from penstock.plan.plan import make_plan
from penstock.run import Run
from penstock.steps import Showing

HELP = "run the flow of a Python file"
ENDED = (
    "; this checkpoint's run is at its end: its sources were read to the end and closed, so new rows are not read. Use "
    "follow=True or --no-end to go on later, or a new --checkpoint and new output directories"
)
TICK_SECONDS = 0.2
GRACE_SECONDS = 10.0
"""How long a run that must stop now may take to finish a commit that has begun."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser, nargs="?")
    parser.add_argument("--list", action="store_true", help="list the workloads, and end")
    parser.add_argument(
        "--engine",
        choices=tuple(ENGINES),
        default="spark",
        help="threads runs in this process, without Java; sequential one row at a time",
    )
    parser.add_argument("--no-page", action="store_true", help="serve no page")
    known = options_of(Options)
    add_flags(parser, known.values())
    for engine, kind in ENGINES.items():
        new = {name: option for name, option in options_of(kind).items() if name not in known}
        if new:
            add_flags(parser.add_argument_group(f"with --engine {engine}"), new.values())
        known |= new
    parser.add_argument(
        "--log",
        choices=("plain", "json"),
        help="log lines instead of the progress line; plain is the default when not on a terminal",
    )


def run(args: argparse.Namespace) -> int:
    if args.list:
        print("\n".join(describe_workloads()))
        return DONE
    options = _options(args)
    flow = load_target(args.target, args.workload_options)
    _refuse_names(options, flow)
    progress = Progress(time.monotonic())
    display = make_display(args.log, progress, sys.stderr)
    directory = options.directory or os.path.join(".penstock", flow.name)

    def show(text: str, _seconds: float) -> None:
        progress.doing = text
        display.say("step", text)

    steps, records = Showing(show), LogRecords(display)
    logging.getLogger("penstock").addHandler(records)
    try:
        _warn_of_memory(flow, display)
        session, options = _prepared(options, flow, directory, display)
        # From here on Ctrl-C is counted; until here it may simply end the command.
        with Interrupts() as interrupts:
            started = Run(flow, options)
            if started.page is not None:
                display.say("page", page_line(started.page, options.page), address=started.page)
            try:
                return _watch(started, interrupts, display, progress, session, getattr(args, "history", directory))
            finally:
                started.close_page()
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        display.fail(error)
        return FAILED
    finally:
        steps.close()
        logging.getLogger("penstock").removeHandler(records)
        display.close()


def _options(args: argparse.Namespace) -> Options:
    """Make the options that the flags say; refuse what the engine has not."""
    given, kind = vars(args), ENGINES[args.engine]
    for name in given:
        able = [engine for engine, each in ENGINES.items() if name in options_of(each)]
        if able and args.engine not in able:
            flag = options_of(ENGINES[able[0]])[name].flag
            raise UsageError(f"{flag} needs --engine {' or '.join(able)}; this run is with --engine {args.engine}")
    if args.no_page and "page" in given:
        raise UsageError("--no-page and --page: give one of them")
    try:
        on = kind(**{name: value for name, value in given.items() if name in options_of(kind)})
        common = {name: value for name, value in given.items() if name in options_of(Options)}
        return Options(**{"page": not args.no_page, "progress": False, **common, "on": on})
    except FlowError as error:
        raise UsageError(as_flags(str(error))) from None


def _prepared(options: Options, flow: Flow, directory: str, display: Display) -> tuple[Any, Options]:
    """Start Spark where the flow runs on it, and say where the run is kept; return the session and the options."""
    from penstock.dashboard.history import HISTORY, new_directory

    history = str(options.history or os.path.join(directory, HISTORY))
    if not isinstance(options.on, Spark):
        how = "one row at a time" if isinstance(options.on, Sequential) else "in this process"
        display.say("starting", f"flow {flow.name!r}, {how}", flow=flow.name)
        # What a checkpoint has goes on; other runs have nothing in common.
        history = history if options.history else new_directory(history)
        return None, replace(options, on_epoch=display.epoch, history=history)
    display.say(
        "starting",
        f"flow {flow.name!r}, checkpoint {directory}",
        flow=flow.name,
        checkpoint=directory,
    )
    from penstock.spark.session import make_session
    from penstock.spark.starting import refuse_early

    refuse_early(make_plan(flow), directory)  # a mistake is told at once, not after Spark has started
    session = make_session(f"penstock: {flow.name}", master=options.on.master)
    on = replace(options.on, session=session, master=None)
    return session, replace(options, on=on, checkpoint=directory, on_epoch=display.epoch, history=history)


def _refuse_names(options: Options, flow: Flow) -> None:
    """Refuse replicas of operators that the flow has not."""
    replicas = options.on.replicas if isinstance(options.on, Threads) else None
    for name in replicas if isinstance(replicas, dict) else ():
        if name not in flow.nodes:
            hint = did_you_mean(name, flow.nodes)
            there = f"{' ' if hint else '; '}there are {', '.join(flow.nodes)}"
            raise UsageError(f"--replicas: there is no operator {name!r}{hint}{there}")


def _warn_of_memory(flow: Flow, display: Display) -> None:
    kept = [node.name for node in flow.nodes.values() if isinstance(node.operator, Sink) and node.operator.writer.keeps]
    if kept:
        sinks = f"sink {kept[0]!r}" if len(kept) == 1 else f"the sinks {', '.join(map(repr, kept))}"
        display.say(
            "warning",
            f"the rows of {sinks} are kept in memory and end with this command; give a writer, such as "
            f"ps.write.parquet(...) or ps.write.console()",
            sinks=kept,
        )


def _tell_decisions(started: Run, known: int, display: Display) -> int:
    """Tell what was decided since so many decisions, each in its sentence; return how many there are by now."""
    decisions, known = started.decisions_since(known)
    for each in decisions:
        if each.what not in (START, HOLD):
            numbers = dict(each.numbers)
            display.say("decision", f"decided: {each.why}", controller=each.controller, what=each.what, numbers=numbers)
    return known


def _watch(started: Run, interrupts: Interrupts, display: Display, progress: Progress, session: Any, kept: str) -> int:
    """Wait for the end, showing progress and obeying Ctrl-C; `kept` is where the run's history is."""
    stopping, known = False, 0
    while True:
        try:
            if started.await_end(TICK_SECONDS):
                break
        except Exception:
            if interrupts.count < 2:
                raise
            break  # the job was cancelled: its epoch is not committed, as was asked for
        known = _tell_decisions(started, known, display)
        display.tick()
        if interrupts.count and not stopping:
            stopping = True
            started.stop()
            display.say("stopping", "stopping after the epoch under way; Ctrl-C again stops now")
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
