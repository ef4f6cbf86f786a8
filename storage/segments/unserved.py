"""What another program may have written into a log, and this broker does not serve.

* Batches of transactions: their readers need read_committed.
* Messages of the formats 0 and 1, which a Kafka before 0.11 wrote, and a later one that was configured so:
```
 0 int64 offset   8 int32 length of what follows   12 uint32 CRC-32 (zlib's) of all from 16 on   16 int8 magic
17 int8 attributes   18 int64 timestamp, in format 1   then key and value, each behind an int32 length
```
A log that has one of them is refused before anything in its folder is changed. It looks like damage to whoever expects
batches, so the look comes first: at every header of a log that is foreign (`foreign`), and wherever a check of whole
segments meets one.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from strandline.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from strandline.protocol.records.compression import Codec
from strandline.runtime.disk import File

TRANSACTION = MAGIC
"""Where formats are told apart by their number, a batch of a transaction has this one."""
_MESSAGE = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_CRC_START = 16
_LENGTH_PREFIX_BYTES = 12
_LEAST_LENGTH = {0: 14, 1: 22}
"""Of a message without key and value."""


class OldMessage(NamedTuple):
    """The head of a message of format 0 or 1."""

    offset: int
    size_bytes: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int
    """Of the message or the youngest of those compressed in it; −1 in format 0, which has none."""

    @property
    def timestamp_type(self) -> str:
        """Kafka's word for it."""
        if not self.magic:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & TIMESTAMP_TYPE_BIT else "CreateTime"

    @property
    def compression_type(self) -> str:
        codec = self.attributes & CODEC_MASK
        return Codec(codec).name.lower() if codec <= Codec.ZSTD else f"reserved-{codec}"


def old_message(file: File, position: int, end: int) -> OldMessage | None:
    """What stands at `position` where it can be a whole message of an old format. Its CRC is not checked."""
    if end - position < _MESSAGE.size:
        return None
    offset, length, crc, magic, attributes = _MESSAGE.unpack(file.pread(_MESSAGE.size, position))
    if offset < 0 or length < _LEAST_LENGTH.get(magic, 2**31) or position + _LENGTH_PREFIX_BYTES + length > end:
        return None
    timestamp_ms = -1
    if magic:
        (timestamp_ms,) = _TIMESTAMP.unpack(file.pread(_TIMESTAMP.size, position + _MESSAGE.size))
    return OldMessage(offset, _LENGTH_PREFIX_BYTES + length, crc, magic, attributes, timestamp_ms)


def is_intact(file: File, position: int, message: OldMessage) -> bool:
    """Whether its CRC is right, so that it is no damaged batch."""
    return zlib.crc32(file.pread(message.size_bytes - _CRC_START, position + _CRC_START)) == message.crc


def is_of_transaction(header: BatchHeader) -> bool:
    return bool(header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT))
