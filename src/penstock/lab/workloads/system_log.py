"""Make up a system log, line for line as syslog writes one: for trying out the failed logins without a log at hand."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.lab.workloads.scatter import scatter

HOSTS = ("combo", "web1", "web2", "db1")
USERS = ("root", "guest", "test", "admin", "alice", "bob")
OTHERS = (
    "su(pam_unix)[{pid}]: session opened for user {user} by (uid=0)",
    "kernel: Out of Memory: Killed process {pid} (httpd).",
    "ftpd[{pid}]: connection from {address} () at port 21",
    "CRON[{pid}]: pam_unix(cron:session): session closed for user {user}",
    "sshd[{pid}]: Accepted publickey for {user} from {address} port 50522 ssh2",
    "logrotate: ALERT exited abnormally with [1]",
)
FAILURE = (
    "sshd(pam_unix)[{pid}]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser= rhost={address}{tail}"
)


def write_log(path: str | Path, rows: int, seed: int = 0, year: int = 2026) -> None:
    lines = LogLines(seed, year)(0, rows)["value"].to_pylist()
    Path(path).write_text("".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class LogLines:
    """Make lines, a tenth of them failed logins; some addresses try again and again for a while."""

    seed: int = 0
    year: int = 2026

    def __call__(self, start: int, stop: int) -> pa.Table:
        noise = scatter(np.arange(start, stop), self.seed).tolist()
        first = dt.datetime(self.year, 1, 1)
        lines = [self._line(first, number, draw) for number, draw in enumerate(noise, start)]
        return pa.table({"value": pa.array(lines, pa.string())})

    def _line(self, first: dt.datetime, number: int, noise: int) -> str:
        at = first + dt.timedelta(seconds=number // 4)
        user = USERS[noise % len(USERS)]
        pid = 1_000 + (noise >> 8) % 30_000
        # One of a few attackers, others from one thousand lines to the next, or anybody.
        attacker = (number // 1_000 * 31 + (noise >> 24) % 3) * 7
        anybody = (noise >> 32) % 65_536
        source = attacker if (noise >> 28) % 2 else anybody
        address = f"218.188.{source // 256 % 256}.{source % 256}"
        text = FAILURE if (noise >> 40) % 10 == 0 else OTHERS[(noise >> 44) % len(OTHERS)]
        tail = f"  user={user}" if (noise >> 50) % 3 else ""  # the log does not always tell
        host = HOSTS[(noise >> 54) % len(HOSTS)]
        message = text.format(pid=pid, user=user, address=address, tail=tail)
        return f"{at.ctime()[4:19]} {host} {message}"  # "Jan  1 00:00:00", in any locale
