"""How much one request may name: topics and partitions, each counted as often as it stands there (of a topic to create:
its partitions assigned by hand, or its settings, whichever are more).

| request body | what happens |
|---|---|
| up to `BROAD_BODY_BYTES` | read as it is: it cannot name more than a few thousand partitions |
| above | counted: more than `MAX_NAMED`, or more than `MAX_CLIENT_BODY_BYTES`, is INVALID_REQUEST; so are many more |
| | lists than that takes (`dialects/native.py`, `MARKERS_PER_ELEMENT`) and a list that is longer (`Named`), before |
| | they are made. Of Kafka's all of it is counted before anything is made (`protocol/kafka/lengths.py`) |
| four times as long | refused by the frame's header, where no record batches belong to it |
| several | bodies count towards the burst's budget (`request_reader.MAX_OTHERS_IN_BURST`): after 32 KiB others run |

So that a step of the event loop is bounded by a count: reading and serving 10,000 partitions takes some tens of
milliseconds. Handlers that can be left in between (Metadata, ListOffsets, OffsetForLeaderEpoch, DeleteRecords) let
others run every `PARTITIONS_PER_STEP` (`steps.py`); they wait for nobody, so tasks of their own do that (`InSteps`),
behind no creation of topics, conversion or cold read. ListOffsets by timestamp does wait, in a handler task. A Produce
of many partitions or megabytes is seen to in such steps by a handler task, too. What only controllers send has no such
bound: its handlers yield by themselves.

A partition that stands twice in one request: Produce appends both in their order; ListOffsets, OffsetForLeaderEpoch and
Metadata answer; Fetch and DeleteRecords, which may wait and be looked at again and again, are INVALID_REQUEST, and so
is DescribeProducers, of which each part of the answer may be long. DescribeConfigs and its like refuse a resource that
stands twice. OffsetFetch, whose partitions stand one list deeper, counts them by itself.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import Request
from strandline.protocol.messages.base import MAX_NAMED

BROAD_BODY_BYTES = MAX_NAMED
"""A name takes a byte at least, a partition three."""

MAX_CLIENT_BODY_BYTES = 2 * 2**20
"""Of a request that clients may send: 10,000 partitions of as many topics with names of 100 characters."""

LIMITS = f"a request is at most {MAX_CLIENT_BODY_BYTES} bytes that name {MAX_NAMED} topics or partitions: send several"


def check_named(message: Request) -> None:
    """RemoteProtocolError where a message names too much: what its lists name is the longest list or map in each
    element (a topic's partitions, or its settings if these are more), or the elements where there are none."""
    named = 0
    for field in msgspec.structs.astuple(message):
        for element in field if isinstance(field, list) else ():
            parts = msgspec.structs.astuple(element) if isinstance(element, msgspec.Struct) else ()
            named += max((len(part) for part in parts if isinstance(part, (list, dict))), default=1) or 1
    if named > MAX_NAMED:
        raise RemoteProtocolError(f"a {type(message).__name__} that names {named} topics and partitions")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Cyclic garbage is not looked for meanwhile: a message has none, and while its lists grow the collector would go
    through them again and again (measured: 550 ms instead of 77 for 300,000 partitions)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
