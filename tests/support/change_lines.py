"""Captured log entries as a reader of the log files finds them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from strandline.protocol.history.lines import Line, read_line

TIME = "2026-11-24T10:00:00.000000Z"


def read_entries(entries: Iterable[Mapping[str, Any]], broker_id: int = 1) -> list[Line]:
    """Each as the line that `runtime/logging.py` writes of it."""
    stamped = ({"broker_id": broker_id, **entry, "timestamp": TIME} for entry in entries)
    return [read_line(json.dumps(entry, default=str)) for entry in stamped]


def read_history(history: Iterable[str]) -> list[Line]:
    """What the brokers of a cluster in memory logged, with the virtual time (from 1970 on) as its time; without what
    stands in the main log alone elsewhere."""
    lines = []
    for entry in history:
        seconds, node, text = entry.split(None, 2)
        if text.startswith("{"):
            moment = datetime.fromtimestamp(float(seconds), UTC)
            fields = text.removesuffix("}").rstrip(",")  # the real time was cut out of it
            more = f'"broker_id":{node.removeprefix("broker-")},"timestamp":"{moment.isoformat()}"'
            lines.append(read_line(f"{fields},{more}}}"))
            if not lines[-1].events and "broker alive" not in text:
                lines.pop()
    return lines
