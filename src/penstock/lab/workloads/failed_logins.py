"""Find failed logins in a system log (Streams, figure 1), and the hosts that try again and again.

The lines are those that syslog writes to /var/log/messages (or auth.log, or secure):

    Nov 16 03:14:11 combo sshd(pam_unix)[19939]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser=
    rhost=218.188.2.4  user=root

(in one line). Each is parsed; those of sshd that tell of a failed login are kept and parsed once more. A line that is
none of syslog's goes to `unparsed` and does no harm.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import penstock as ps
from penstock.annotated import Amount, Limits, checked
from penstock.lab.workloads.outputs import writer
from penstock.lab.workloads.system_log import LogLines

TRIES = 5
WITHIN = dt.timedelta(minutes=10)

_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_LINE = re.compile(
    r"(?:(?P<month>[A-Z][a-z]{2}) +(?P<day>\d+) (?P<time>\d\d:\d\d:\d\d)|(?P<iso>\d{4}-\d\d-\d\dT\S+)) "
    r"(?P<host>\S+) (?P<service>[^:]+): ?(?P<message>.*)"
)
_FIELD = re.compile(r"(\w+)=(\S*)")


class LogLine(NamedTuple):
    at: dt.datetime
    host: str
    service: str
    message: str


class Failure(NamedTuple):
    """A failed login: who tried it from where. `user` is empty where the log does not tell."""

    at: dt.datetime
    uid: str
    euid: str
    tty: str
    rhost: str
    user: str


class Suspect(NamedTuple):
    """A host that failed too often."""

    at: dt.datetime
    rhost: str
    since: dt.datetime


@dataclass(frozen=True)
class Parse:
    """Parse a line. The old format has no year, so it must be told."""

    year: int

    def __call__(self, line: ps.Record) -> LogLine:
        found = _LINE.match(line.value)
        if found is None:
            raise ValueError("this is no line of syslog's")
        month, day, time, iso, host, service, message = found.groups()
        if iso is not None:
            at = dt.datetime.fromisoformat(iso)
            return LogLine(at if at.tzinfo else at.replace(tzinfo=dt.UTC), host, service, message)
        hour, minute, second = int(time[:2]), int(time[3:5]), int(time[6:])
        at = dt.datetime(self.year, 1 + _MONTHS.index(month) // 3, int(day), hour, minute, second, tzinfo=dt.UTC)
        return LogLine(at, host, service, message)


def is_failed_login(line: LogLine) -> bool:
    """Keep what sshd says of logins that failed."""
    return "sshd" in line.service and "authentication failure" in line.message


def parse_failure(line: LogLine) -> Failure:
    fields = dict(_FIELD.findall(line.message))
    return Failure(line.at, *(fields.get(name, "") for name in ("uid", "euid", "tty", "rhost", "user")))


def suspect(tries: ps.Match) -> Suspect:
    """Report a host that has failed too often; what comes after that counts anew."""
    return Suspect(tries.last.at, tries.last.rhost, tries.first.at)


def login_failures(lines: ps.Stream, year: int) -> tuple[ps.Stream, ps.Stream]:
    """Turn lines into failures, as the composite of the figure does; return them, and the lines that are none."""
    parsed = lines.map(Parse(year), name="parse", on_error="dead_letter")
    return parsed.filter(is_failed_login).map(parse_failure), parsed.errors


def repeated(failures: ps.Stream) -> ps.Stream:
    tries = ps.step("failed", lambda failure: True, times=TRIES)
    return failures.key_by("rhost").pattern(tries, within=WITHIN, time="at", combine=suspect)


@checked
def failed_logins(
    *,
    logs: str = "",
    year: Annotated[int, Limits(0, dt.MAXYEAR)] = 0,
    lines: Amount = 200_000,
    seed: int = 0,
    out: str = "",
) -> ps.Flow:
    """Find failed logins in system logs, and hosts that try again and again.

    `logs` is a log file, or a directory of them; without it `lines` lines are made up. `year` is the year of the lines,
    which most logs do not tell; 0 is this year. `out` is the directory that results are written to; without it some of
    them are printed.
    """
    flow, year = ps.Flow("failed-logins"), year or dt.date.today().year
    made = ps.read.generate(LogLines(seed, year), schema={"value": str}, rows=lines)
    failures, unparsed = login_failures(flow.source("lines", ps.read.text(logs) if logs else made), year)
    failures.sink("failures", writer(out, "failures"))
    repeated(failures).sink("suspects", writer(out, "suspects"))
    unparsed.sink("unparsed", writer(out, "unparsed"))
    return flow
