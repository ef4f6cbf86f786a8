"""What all messages share: an immutable, array-like struct; requests know their API key and their response.

A message is a msgpack array of its fields in order (`array_like`): unknown trailing fields are ignored, missing ones
take their defaults, so a field may be added at the end without a new version unless safety rests on it.
Fields named `records_size` give the length in bytes of one raw attachment each (−1: none), in the order in which
they appear; the attachments follow the body in the same frame.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from strandline.protocol.api import ApiKey


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of every message and of every part of one."""


class Request(Message, frozen=True, array_like=True, gc=False):
    """Base of requests. `RESPONSE` is the class of the answer, `VERSIONS` the (lowest, highest) version served."""

    API_KEY: ClassVar[ApiKey]
    RESPONSE: ClassVar[type[Message]]
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
