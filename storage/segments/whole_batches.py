"""Whether whole batches stand behind damage.

Of a write that a kill cut short the beginning is there: behind a torn batch the file ends. Where a batch stands behind
it that passes its CRC, something else damaged what is before. (After a power failure that is ordinary: pages reach the
disk in any order.)

The rest of the file is read once, piece by piece. A regular expression finds where a header of this segment may stand,
by its magic and the upper half of its base offset; hardly any other bytes look so. What does has its CRC computed.
Bytes can be made to look so over and over: once `_MOST_BYTES` were looked at, they count as whole batches, because what
is not understood is kept.
"""

from __future__ import annotations

import re
from itertools import chain

import crc32c

from strandline.protocol.records.batch import CRC_START, HEADER_BYTES, MAGIC, BatchHeader, read_header
from strandline.runtime.disk import File
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET

_CHUNK_BYTES = 2**20
_MOST_BYTES = 2**26
"""CRCs of so much take some 50 ms, so much of bytes that only look like headers some seconds."""
_MAGIC_POSITION = 16


def is_followed(file: File, base_offset: int, position: int, end: int) -> bool:
    """Whether a whole batch stands at `position`, whatever its offset, or behind it, up to `end`, one of the segment
    that begins at `base_offset`. OSError from the disk."""
    limit = base_offset + MAX_RELATIVE_OFFSET
    headers = _headers(base_offset, limit)
    room = _MOST_BYTES
    start = position
    while end - start >= HEADER_BYTES:
        chunk = file.pread(min(_CHUNK_BYTES, end - start), start)
        magics = headers.finditer(chunk, 0, max(0, len(chunk) - HEADER_BYTES + _MAGIC_POSITION + 1))
        places = (magic.start() - _MAGIC_POSITION for magic in magics)
        for place in chain([0], places) if start == position else places:
            header = read_header(chunk, place)
            room -= HEADER_BYTES
            if not HEADER_BYTES <= header.size_bytes <= end - start - place or header.last_offset_delta < 0:
                continue
            if start + place > position and not base_offset <= header.base_offset <= header.last_offset <= limit:
                continue
            room -= header.size_bytes
            if room < 0 or (header.magic == MAGIC and passes_crc(file, start + place, header)):
                return True
        if room < 0 or len(chunk) < HEADER_BYTES:
            return room < 0
        start += len(chunk) - HEADER_BYTES + 1
    return False


def passes_crc(file: File, position: int, header: BatchHeader) -> bool:
    """Whether the batch at `position`, of which this is the header, is as it was written. OSError from the disk."""
    crc, end = 0, position + header.size_bytes
    for start in range(position + CRC_START, end, _CHUNK_BYTES):
        crc = crc32c.crc32c(file.pread(min(_CHUNK_BYTES, end - start), start), crc)
    return crc == header.crc


def _headers(base_offset: int, limit: int) -> re.Pattern[bytes]:
    """Finds the magic of each header whose base offset may lie in between, and whose length is not negative. It begins
    with a single byte, which is searched for as fast as memory is read."""
    halves = b"|".join(re.escape((offset >> 32).to_bytes(4)) for offset in (base_offset, limit))
    return re.compile(b"\\x02(?<=(?:" + halves + b")[\\0-\\xff]{4}[\\0-\\x7f][\\0-\\xff]{7}\\x02)")
