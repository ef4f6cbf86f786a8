"""What a topic asks of produced batches beyond what is asked of all: keys, a codec, whose clock, which timestamps.

`batch_rules` turns the topic's configuration into one value, once per configuration: None for the ordinary topic, so
that its batches pay one comparison. The names are those of Kafka's topic keys:

    compression.type                      producer: as sent; else every batch is stored in that codec
    message.timestamp.type                LogAppendTime: the broker's clock, in the header of each batch
    message.timestamp.before.max.ms       CreateTime only: how far a timestamp may lie behind the broker's clock …
    message.timestamp.after.max.ms        … and ahead of it; a record without timestamp (−1) is never out of bounds
    message.timestamp.difference.max.ms   the older key: holds for each of the two that is left at its default
    cleanup.policy                        with "compact" every record needs a key

Imported by the configuration: no codec is loaded here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_CODEC_BITS = 0x07

CODEC_NUMBERS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Names of `compression.type` (but for `producer`) → codec bits of a batch's attributes."""

UNBOUNDED_MS = 2**63 - 1


class BatchRules(NamedTuple):
    """`codec` None: batches stay as they were sent. `before_max_ms`, `after_max_ms`: `UNBOUNDED_MS` where any goes."""

    needs_keys: bool = False
    codec: int | None = None
    stamps: bool = False
    before_max_ms: int = UNBOUNDED_MS
    after_max_ms: int = UNBOUNDED_MS

    @property
    def bounds_timestamps(self) -> bool:
        return self.before_max_ms != UNBOUNDED_MS or self.after_max_ms != UNBOUNDED_MS

    def needs_worker(self, attributes: int) -> bool:
        """Whether a batch with these attributes has to be decoded or encoded."""
        codec = attributes & _CODEC_BITS
        if self.codec is not None and codec != self.codec:
            return True
        return codec != 0 and (self.needs_keys or self.bounds_timestamps)

    def timestamp_bounds_ms(self, now_ms: int) -> tuple[int, int]:
        """(earliest, latest) timestamp that a record may have now."""
        return now_ms - self.before_max_ms, now_ms + self.after_max_ms


def batch_rules(
    *,
    cleanup_policy: Sequence[str],
    compression_type: str,
    timestamp_type: str,
    before_max_ms: int,
    after_max_ms: int,
    difference_max_ms: int,
) -> BatchRules | None:
    """The rules of a topic with these values; None where it asks nothing beyond the ordinary."""
    stamps = timestamp_type == "LogAppendTime"
    rules = BatchRules(
        needs_keys="compact" in cleanup_policy,
        codec=CODEC_NUMBERS.get(compression_type),
        stamps=stamps,
        # Where the broker's clock stamps the records, nobody reads what the producers' clocks said.
        before_max_ms=UNBOUNDED_MS if stamps else _own_or_older(before_max_ms, difference_max_ms),
        after_max_ms=UNBOUNDED_MS if stamps else _own_or_older(after_max_ms, difference_max_ms),
    )
    return None if rules == BatchRules() else rules


def _own_or_older(own_ms: int, older_ms: int) -> int:
    return older_ms if own_ms == UNBOUNDED_MS else own_ms
