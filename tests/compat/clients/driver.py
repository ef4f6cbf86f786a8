"""What the drivers in Python have in common: the command line, the records they are given and those that they show.

Every driver is a program of its own, in its client's language, with one command line:

    produce --bootstrap HOST:PORT,… --topic NAME --codec none|gzip|snappy|lz4|zstd [--idempotent]
    consume --bootstrap HOST:PORT,… --topics NAME,… --count N [--timeout SECONDS]
            [--group NAME [--assignor range|roundrobin] [--auto-commit]]

`produce` reads records from its standard input, one JSON object a line: key, value (hexadecimal or null), headers
(pairs of a name and a value in hexadecimal or null), timestamp (ms). It prints where each came to lie, in the same
order: partition, offset.

`consume` prints what it reads, one JSON object a line without blanks, its keys in this order: topic, partition, offset,
timestamp, key, value, headers. It begins at the beginning and ends after N records, or with exit code 1 where they do
not come within the time-out. With a group it joins that, prints `{"assigned":[["topic",0],…]}` whenever it got
partitions, commits what it has printed, and leaves in order on SIGTERM. With --auto-commit, which our own client alone
takes, its polls commit.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_TIMEOUT_S = 120.0
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def arguments() -> argparse.Namespace:
    """`command` is produce or consume."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    produce = commands.add_parser("produce")
    produce.add_argument("--topic", required=True)
    produce.add_argument("--codec", default="none")
    produce.add_argument("--idempotent", action="store_true")
    consume = commands.add_parser("consume")
    consume.add_argument("--topics", required=True, type=lambda text: text.split(","))
    consume.add_argument("--count", required=True, type=int)
    consume.add_argument("--group")
    consume.add_argument("--assignor", help="default: what the client has by itself")
    consume.add_argument("--auto-commit", action="store_true", help="the client commits by itself")
    consume.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_S)
    for command in (produce, consume):
        command.add_argument("--bootstrap", required=True)
    return parser.parse_args()


def given_records() -> Iterator[Record]:
    """What is to be sent."""
    for line in sys.stdin:
        given = json.loads(line)
        headers = [(name, _bytes(value)) for name, value in given["headers"]]
        yield Record(_bytes(given["key"]), _bytes(given["value"]), headers, given["timestamp"])


def show_acks(acks: Iterable[tuple[int, int]]) -> None:
    """(partition, offset) of each record that was given."""
    sys.stdout.writelines(f'{{"partition":{partition},"offset":{offset}}}\n' for partition, offset in acks)
    sys.stdout.flush()


class Shown:
    """What `consume` prints, and whether it is done."""

    def __init__(self, count: int, timeout_s: float) -> None:
        self._missing = count
        self._deadline = time.monotonic() + timeout_s
        self._is_told_to_stop = False
        signal.signal(signal.SIGTERM, self._stop)

    def is_done(self) -> bool:
        """Everything was read, or SIGTERM came. Ends the program when it is late."""
        if self._missing > 0 and not self._is_told_to_stop and time.monotonic() > self._deadline:
            sys.exit(f"{self._missing} records did not come in time")
        return self._missing <= 0 or self._is_told_to_stop

    def record(self, topic: str, partition: int, offset: int, record: Record) -> None:
        shown = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": record.timestamp,
            "key": _hex(record.key),
            "value": _hex(record.value),
            "headers": [[name, _hex(value)] for name, value in record.headers],
        }
        sys.stdout.write(_JSON.encode(shown) + "\n")
        self._missing -= 1

    def assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        sys.stdout.write(_JSON.encode({"assigned": sorted(partitions)}) + "\n")
        self.flush()

    def flush(self) -> None:
        """To be called before a commit: what is committed was shown."""
        sys.stdout.flush()

    def _stop(self, *_: Any) -> None:
        self._is_told_to_stop = True


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).hex()


def headers_or_none(record: Record) -> Sequence[tuple[str, bytes | None]] | None:
    """Clients differ in whether they take an empty list."""
    return record.headers or None
