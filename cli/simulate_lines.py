"""What brokers logged in a simulated run, as change logs have it: with whose log it is and the virtual time as the time
of day of 1970-01-01. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from strandline.protocol.history.lines import Line, read_line
from strandline.spark_connector.pipelines.pictures import time_text

_LINE = re.compile(r"\s*(\d+\.\d+) (\S+?-(\d+)) (.*)", re.DOTALL)


class Spoken(NamedTuple):
    """line: what a reader of change logs makes of it, without events where it is of something else. fields: all that it
    says; a process that ended says a text only."""

    at_s: float
    node: str
    text: str
    line: Line | None
    fields: dict[str, Any]


def spoken(lines: Iterable[str]) -> Iterator[Spoken]:
    """lines: `time node text`, of a report."""
    for each in lines:
        found = _LINE.fullmatch(each)
        assert found is not None, each
        time, node, broker_id, text = found.groups()
        at_s = float(time)
        if not text.startswith("{"):
            yield Spoken(at_s, node, text, None, {})
            continue
        timestamp = time_text(at_s * 1000).replace(" ", "T") + "Z"
        fields = {**json.loads(text), "timestamp": timestamp, "broker_id": int(broker_id)}
        yield Spoken(at_s, node, text, read_line(json.dumps(fields)), fields)
