"""Captured log entries as a reader of the log files finds them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from strandline.protocol.history.lines import Line, read_line

TIME = "2026-11-24T10:00:00.000000Z"


def read_entries(entries: Iterable[Mapping[str, Any]], broker_id: int = 1) -> list[Line]:
    """Each as the line that `runtime/logging.py` writes of it."""
    stamped = ({"broker_id": broker_id, **entry, "timestamp": TIME} for entry in entries)
    return [read_line(json.dumps(entry, default=str)) for entry in stamped]
