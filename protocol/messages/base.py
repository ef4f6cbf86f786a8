"""What all messages share: an immutable, array-like struct.

A message is a msgpack array of its fields in order (`array_like`): unknown trailing fields are ignored, missing ones
take their defaults, so a field may be added at the end without a new version unless safety rests on it.
Fields named `records_size` give the length in bytes of one raw attachment each (−1: none), in the order in which
they appear; the attachments follow the body in the same frame.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

MAX_NAMED = 10_000
"""Topics, or partitions, in one request of a client or follower: more than one broker should lead."""

T = TypeVar("T")
Named = Annotated[list[T], msgspec.Meta(max_length=MAX_NAMED)]
"""A list in what clients send: a longer one is refused by its length, before its elements are made."""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of every message and of every part of one."""


class Request(Message, frozen=True, array_like=True, gc=False):
    """Base of requests; `protocol/api.py` has a row for each."""

    @property
    def has_answer(self) -> bool:
        """False: the broker sends nothing back. Where the request fails it closes the connection, which tells."""
        return True
