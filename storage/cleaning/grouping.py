"""Which segments become one: pure.

Neighbours are joined as long as the result is sure to be a legal segment: `.log` within `segment.bytes`, both indexes
within `segment.index.bytes` (by what they have now: cleaning only takes away), all offsets within 31 bits of its base.
A group has few enough members that putting them aside, which is done on the event loop, stays short.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET

MAX_SOURCES = 50
"""Three renames each, some 10 µs a rename."""


class Source(msgspec.Struct, frozen=True):
    """A sealed segment as it was when the cleaning began."""

    base_offset: int
    end_offset: int
    """Base offset of the next one."""
    size_bytes: int
    index_bytes: int
    """Of the larger index."""


def group(
    sources: Sequence[Source], *, end_offset: int, segment_bytes: int, segment_index_bytes: int
) -> list[list[Source]]:
    """The sources that begin below `end_offset`, in order, in groups of one or more."""
    groups: list[list[Source]] = []
    size = index = 0
    for source in sources:
        if source.base_offset >= end_offset:
            break
        joins = (
            bool(groups)
            and len(groups[-1]) < MAX_SOURCES
            and size + source.size_bytes <= segment_bytes
            and index + source.index_bytes <= segment_index_bytes
            and source.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if joins:
            groups[-1].append(source)
            size, index = size + source.size_bytes, index + source.index_bytes
        else:
            groups.append([source])
            size, index = source.size_bytes, source.index_bytes
    return groups
