"""How often which latency occurred, in a few thousand plain integers however many records there were. Pure.

As in HdrHistogram, values share a bucket with those that differ from them by less than a hundredth: below
`EXACT_BELOW_US` each value has a bucket of its own, above it every power of two is cut into as many buckets. So
histograms of several threads, processes or intervals are added up without loss, which percentiles cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

PRECISION_BITS = 7
EXACT_BELOW_US = 1 << (PRECISION_BITS + 1)


class Histogram:
    """Counts of values in whole microseconds; negative ones count as 0."""

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0
        """Of all values, exact."""
        self.max_us = 0
        self._counts: dict[int, int] = {}

    def record(self, value_us: int, count: int = 1) -> None:
        """`count` times that value."""
        value_us = max(value_us, 0)
        bucket = bucket_of(value_us)
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += count
        self.total_us += value_us * count
        self.max_us = max(self.max_us, value_us)

    def add(self, other: Histogram) -> None:
        """All values of another one."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self.total_us += other.total_us
        self.max_us = max(self.max_us, other.max_us)

    def percentile_us(self, percent: float) -> int:
        """The value that so many percent do not exceed, to a hundredth; 0 where there are no values."""
        wanted = self.count * percent / 100
        for limit_us, below in self.cumulated():
            if below >= wanted:
                return limit_us
        return self.max_us

    @property
    def mean_us(self) -> float:
        return self.total_us / self.count if self.count else 0.0

    def cumulated(self) -> Iterator[tuple[int, int]]:
        """(value, how many do not exceed it), by value; the last value is the greatest there was."""
        below = 0
        for bucket in sorted(self._counts):
            below += self._counts[bucket]
            yield min(limit_of(bucket), self.max_us), below

    def fields(self) -> dict[str, object]:
        """As JSON: what `of_fields` reads. `buckets`: number of the bucket and its count, in turn."""
        flat = [number for bucket in sorted(self._counts) for number in (bucket, self._counts[bucket])]
        return {"precision_bits": PRECISION_BITS, "total_us": self.total_us, "max_us": self.max_us, "buckets": flat}

    @classmethod
    def of_fields(cls, fields: Mapping[str, object]) -> Histogram:
        """What `fields` made."""
        flat, total_us, max_us = fields["buckets"], fields["total_us"], fields["max_us"]
        assert isinstance(flat, list) and isinstance(total_us, int) and isinstance(max_us, int)
        found = cls()
        found._counts = dict(zip(flat[::2], flat[1::2], strict=True))
        found.count, found.total_us, found.max_us = sum(found._counts.values()), total_us, max_us
        return found

    @classmethod
    def sum(cls, histograms: Iterable[Histogram]) -> Histogram:
        """One with the values of all."""
        summed = cls()
        for each in histograms:
            summed.add(each)
        return summed


def bucket_of(value_us: int) -> int:
    """The number of a value's bucket; greater values have greater ones."""
    if value_us < EXACT_BELOW_US:
        return value_us
    shift = value_us.bit_length() - PRECISION_BITS - 1
    return (shift << PRECISION_BITS) + (value_us >> shift)


def limit_of(bucket: int) -> int:
    """The greatest value of a bucket."""
    if bucket < EXACT_BELOW_US:
        return bucket
    shift = (bucket >> PRECISION_BITS) - 1
    return ((bucket - (shift << PRECISION_BITS) + 1) << shift) - 1
