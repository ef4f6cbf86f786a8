"""How much one request may name: topics and partitions, each counted as often as it stands there (of a topic to create:
its partitions assigned by hand, or its settings, whichever are more).

| request body | what happens |
|---|---|
| up to `BROAD_BODY_BYTES` | read as it is: it cannot name more than a few thousand partitions |
| above | counted: more than `MAX_NAMED`, or more than `MAX_CLIENT_BODY_BYTES`, is INVALID_REQUEST; so are many more |
| | lists than that takes, before they are made (`frame.MARKERS_PER_ELEMENT`) |
| several | bodies count towards the burst's budget (`burst.MAX_OTHERS_IN_BURST`): after 32 KiB others run |

So that a step of the event loop is bounded by a count: reading and serving 10,000 partitions takes some tens of
milliseconds. Handlers that can be left in between (Metadata, ListOffsets, OffsetForLeaderEpoch, DeleteRecords) let
others run every `PARTITIONS_PER_STEP`; they wait for nobody, so tasks of their own do that (`request_channel.InSteps`),
behind no creation of topics, conversion or cold read. ListOffsets by timestamp does wait, in a handler task. What only
controllers send has no such bound: its handlers yield by themselves.

A partition that stands twice in one request: Produce appends both in their order; ListOffsets, OffsetForLeaderEpoch and
Metadata answer; Fetch and DeleteRecords, which may wait and be looked at again and again, are INVALID_REQUEST.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from strandline.protocol import messages as m
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.native.frame import MAX_NAMED, Buffer, decode_body

R = TypeVar("R", bound=m.Request)

BROAD_BODY_BYTES = MAX_NAMED
"""A name takes a byte at least, a partition three."""

MAX_CLIENT_BODY_BYTES = 2 * 2**20
"""Of a request that clients may send: 10,000 partitions of as many topics with names of 100 characters."""

PARTITIONS_PER_STEP = 200
"""Partitions between two checkpoints, where a handler can be left in between: of questions, and of role changes, so
that a request over 10 K partitions does not hold the loop."""


def decode_broad(request_class: type[R], body: Buffer, *, is_bounded: bool) -> R:
    """`decode_body` of a large body. is_bounded: the limits for what clients send hold. RemoteProtocolError."""
    limits = (
        f"a request is at most {MAX_CLIENT_BODY_BYTES} bytes that name {MAX_NAMED} topics or partitions: send several"
    )
    if is_bounded and len(body) > MAX_CLIENT_BODY_BYTES:
        raise RemoteProtocolError(f"body of {len(body)} bytes: {limits}")
    with _collector_paused():
        try:
            return decode_body(request_class, body, max_elements=MAX_NAMED if is_bounded else None)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{error} ({limits})" if is_bounded else str(error)) from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Cyclic garbage is not looked for meanwhile: a message has none, and while its lists grow the collector would go
    through them again and again (measured: 550 ms instead of 77 for 300,000 partitions)."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
