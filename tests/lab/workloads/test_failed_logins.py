"""Failed logins against a plain reading of the lines, on every engine; real lines of several systems, by hand."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.lab.workloads import failed_logins as workload
from penstock.lab.workloads.system_log import LogLines, write_log

REAL = [
    "Jun 14 15:16:01 combo sshd(pam_unix)[19939]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser= "
    "rhost=218.188.2.4 ",
    "Jun 15 02:04:59 combo sshd(pam_unix)[20882]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser= "
    "rhost=220-135-151-1.hinet-ip.hinet.net  user=root",
    "Jun  9 06:06:20 combo syslogd 1.4.1: restart.",
    "2026-06-14T15:16:02.250000+02:00 web sshd[411]: pam_unix(sshd:auth): authentication failure; logname= uid=0 "
    "euid=0 tty=ssh ruser= rhost=10.0.0.7  user=al",
    "Jun 14 15:16:02 combo su(pam_unix)[21416]: authentication failure; logname= uid=0 euid=0 tty= ruser= rhost=",
    "Jun 14 15:16:02 combo sshd[24200]: Accepted password for root from 10.0.0.7 port 50522 ssh2",
    "-- MARK --",
    "Jun 31 00:00:00 combo kernel: a day that does not exist",
    "",
]


def utc(*when: int) -> dt.datetime:
    return dt.datetime(*when, tzinfo=dt.UTC)


def build(reader: Any, year: int) -> ps.Flow:
    flow = ps.Flow("logins")
    failures, unparsed = workload.login_failures(flow.source("lines", reader), year)
    failures.sink("failures")
    workload.repeated(failures).sink("suspects")
    unparsed.sink("unparsed")
    return flow


def test_real_lines(tmp_path: Path, results_of: Any):
    (tmp_path / "messages").write_text("\n".join(REAL))
    found = results_of(build(ps.read.text(str(tmp_path)), 2005), 1_000)
    assert found["failures"] == [
        (utc(2005, 6, 14, 15, 16, 1), "0", "0", "NODEVssh", "218.188.2.4", ""),
        (utc(2005, 6, 15, 2, 4, 59), "0", "0", "NODEVssh", "220-135-151-1.hinet-ip.hinet.net", "root"),
        (utc(2026, 6, 14, 13, 16, 2, 250_000), "0", "0", "ssh", "10.0.0.7", "al"),
    ]
    assert [json.loads(letter.row)["value"] for letter in found["unparsed"]] == REAL[6:8]


def plain(lines: list[str], year: int) -> tuple[list[Any], list[Any]]:
    """Cut lines at blanks, and keep all failures of all hosts."""
    failures = []
    for line in lines:
        month, day, clock, _, service, *words = line.split()
        if service.startswith("sshd") and words[:2] == ["authentication", "failure;"]:
            at = dt.datetime.strptime(f"{year} {month} {day} {clock} +0000", "%Y %b %d %H:%M:%S %z")
            told = dict(word.split("=", 1) for word in words[2:])
            failures.append((at, *(told.get(name, "") for name in ("uid", "euid", "tty", "rhost", "user"))))
    suspects, begin = [], dict.fromkeys((failure[4] for failure in failures), 0)
    for n, failure in enumerate(failures):
        host = failure[4]
        recent = [
            each
            for each in failures[begin[host] : n + 1]
            if each[4] == host and failure[0] - each[0] < dt.timedelta(minutes=10)
        ]
        if len(recent) == 5:
            suspects.append((failure[0], host, recent[0][0]))
            begin[host] = n + 1
    return failures, suspects


def test_made_lines_as_by_plain_python(tmp_path: Path, results_of: Any):
    write_log(tmp_path / "1.log", 3_000, seed=3)
    write_log(tmp_path / "2.log", 1_000, seed=4)
    lines = [line for name in ("1.log", "2.log") for line in (tmp_path / name).read_text().splitlines()]
    found = results_of(build(ps.read.text(str(tmp_path)), 2026), 1_000)
    failures, suspects = plain(lines, 2026)
    assert len(failures) > 300
    assert len(suspects) > 20
    assert found == {"failures": failures, "suspects": suspects, "unparsed": []}


def test_made_lines_are_the_same_in_pieces_and_in_a_file(tmp_path: Path):
    write_log(tmp_path / "log", 50, seed=1)
    lines = LogLines(1)(0, 50)["value"].to_pylist()
    assert (tmp_path / "log").read_text().splitlines() == lines
    assert LogLines(1)(20, 30)["value"].to_pylist() == lines[20:30]


@pytest.mark.parametrize("line", ["", "x", "Foo 12 00:00:00 host app: text", "2026-13-01T00:00:00 host app: text"])
def test_what_is_no_line_of_a_log(line: str):
    record = ps.read.items([{"value": line}]).items[0]
    with pytest.raises(ValueError, match=r"no line of syslog's|substring not found|month must be|Invalid isoformat"):
        workload.Parse(2026)(type("Line", (), record))
