"""Logs for machines: a JSON object per line, for any handler of Python's `logging`.

    handler.setFormatter(JsonFormatter())

Loggers are called `penstock` and below. What a record has beside its message (`event`, `epoch`, ...) are fields.
"""

from __future__ import annotations

import datetime as dt
import json
import logging

_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
"""What every record has."""


class JsonFormatter(logging.Formatter):
    """Write a record as one line of JSON: time (UTC), level, logger, message, its own fields, and the error."""

    def format(self, record: logging.LogRecord) -> str:
        when = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
