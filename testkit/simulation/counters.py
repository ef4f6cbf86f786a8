"""What a run reached that is rare: without it an oracle holds, and proves nothing. A batch of seeds has to have each.

Some of it brokers log; the rest is seen where it is decided, by wrapping that method while a run lasts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from strandline.broker.handlers.fetch_reads import FetchReads
from strandline.broker.replication.isr_updates import IsrUpdates
from strandline.broker.replication.leadership import Leadership
from strandline.protocol.errors import ErrorCode
from strandline.runtime.coordination import ConnectionLost, SessionExpired
from strandline.storage.producers.states import ProducerStates
from strandline.testkit.simulation.faults.of_brokers import IDENTITIES
from strandline.testkit.simulation.faults.of_disks import FILLED
from strandline.testkit.simulation.faults.places import DISK_PLACES, WRITES
from strandline.testkit.simulation.wrapping import Wrap, wrapped
from strandline.testkit.zookeeper.server import MemoryZooKeeper

EVENTS = {
    "elected controller": "controllers elected",
    "no longer controller": "controllers resigned",
    "isr changed": "ISRs changed",
    "isr frozen": "ISR writes met another leader or epoch",
    "isr proposal rejected": "expansions refused: who would join was restarted",
    "left isrs after possible data loss": "lossy starts left their ISRs",
    "replaced own stale registration": "registrations of a past life replaced",
    "broker suspected": "brokers suspected within their session",
    "controlled shutdown done": "controlled shutdowns",
    "log-dir-full": "disks were full",
    "log directory has room again": "full disks were used again",
    "log-dir-offline": "log directories went offline",
    "log-truncated": "torn tails cut at a start",
    "producers-rebuilt": "producers rebuilt from the log",
    "index-rebuilt": "indexes rebuilt",
    "unclean election": "unclean elections by the longest log",
    "log-shortened": "logs shorter than what they had vouched for",
}
"""Beginning of a logged event → what is counted."""

ALWAYS_REACHED = (
    *EVENTS.values(),
    "elections",
    "records were cut off",
    "fetches diverged",
    "fetches fenced",
    "fetches of an epoch that is not known yet",
    "repeated batches recognised",
    "ISR writes met another version",
    "ISR writes without an answer",
    "sessions expired",
    "eligible replicas elected",
    "damage was mended by the broker",
    "a damaged log was removed",
    "kafka member: joined",
    "a file was not opened for want of descriptors",
    *(f"a foreign disk was refused: {key}" for key in IDENTITIES),
    *(f"no room: {place}" for place in FILLED),
    *(f"ended at an operation of the disk: {place}" for place in DISK_PLACES),
    *(f"killed at a write to ZooKeeper: {write}" for write in WRITES),
)
"""Above zero in a batch of seeds, or the simulator does not reach what it is there for."""


@contextmanager
def counting(sometimes: Counter[str]) -> Iterator[None]:
    """Count while the block lasts."""

    def count_fetch(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        data, region = original(*args, **options)
        if data.diverging_epoch is not None:
            sometimes["fetches diverged"] += 1
        if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            sometimes["fetches fenced"] += 1
        elif data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            sometimes["fetches of an epoch that is not known yet"] += 1
        return data, region

    def count_repetition(original: Callable[..., Any], *args: Any) -> Any:
        known = original(*args)
        sometimes["repeated batches recognised"] += known is not None
        return known

    async def count_reread(original: Callable[..., Any], *args: Any) -> Any:
        sometimes["ISR writes met another version"] += 1
        return await original(*args)

    async def count_silence(original: Callable[..., Any], updates: IsrUpdates, *args: Any) -> Any:
        sometimes["ISR writes without an answer"] += isinstance(args[-1], ConnectionLost | SessionExpired)
        return await original(updates, *args)

    def count_end(original: Callable[..., None], *args: Any) -> None:
        sometimes["sessions expired"] += 1
        original(*args)

    def count_reluctance(original: Callable[..., bool], leadership: Leadership, *args: Any) -> bool:
        wants = original(leadership, *args)
        if not wants and leadership.proposal is None and not leadership.frozen:
            sometimes["expansions that waited for a follower"] += 1
        return wants

    with wrapped(
        Wrap(FetchReads, "read_one", count_fetch),
        Wrap(ProducerStates, "check", count_repetition),
        Wrap(IsrUpdates, "_read_back", count_reread),
        Wrap(IsrUpdates, "_outcome", count_silence),
        Wrap(MemoryZooKeeper, "expire", count_end),
        Wrap(Leadership, "wants_to_expand", count_reluctance),
    ):
        yield


def count_events(lines: Iterable[str], sometimes: Counter[str]) -> None:
    """Of what brokers logged."""
    for line in lines:
        told = line.split(maxsplit=2)[2]
        event = json.loads(told)["event"] if told.startswith("{") else ""
        for beginning, name in EVENTS.items():
            if event.startswith(beginning):
                sometimes[name] += 1
