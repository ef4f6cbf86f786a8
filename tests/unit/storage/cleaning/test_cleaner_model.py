"""The cleaner against a model, on random logs: codecs, tombstones, producers, several rounds, small maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.protocol.records import BatchBuilder
from strandline.protocol.records.batch import BatchHeader
from strandline.protocol.records.validation import validate_produced
from strandline.storage.cleaning.rewrite import has_horizon
from strandline.storage.log.log import Log
from support.cleaning import Seen, batches, check_compacted, clean, expected_records, records_of
from support.storage_site import StorageSite

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

record_strategy = st.tuples(
    st.integers(0, 12).map(lambda number: b"k%d" % number if number < 12 else b"long" * 100),
    st.one_of(st.none(), st.binary(max_size=60), st.just(b"v" * 300)),
    st.integers(0, 5000),
    st.sampled_from([(), (("h", b"x"), ("ä", None))]),
)
batch_strategy = st.tuples(
    st.lists(record_strategy, min_size=1, max_size=8), st.sampled_from(CODECS), st.sampled_from([-1, -1, 5, 6])
)


def append(log: Log, records: list[Any], codec: str, producer: int, sequences: dict[int, int]) -> None:
    builder = BatchBuilder(codec, 2**20)
    for key, value, timestamp_ms, headers in records:
        assert builder.append(timestamp_ms, key, value, headers)
    if producer >= 0:
        builder.set_producer(producer, 0, sequences.get(producer, 0))
        sequences[producer] = sequences.get(producer, 0) + len(records)
    produced = validate_produced(memoryview(bytearray(builder.build())), max_batch_bytes=2**20)
    log.append_as_leader(produced, 3)


def identity(header: BatchHeader) -> tuple[int, ...]:
    """What cleaning never changes of a batch."""
    return (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def last_offsets(log: Log) -> dict[int, int]:
    return {seen.header.producer_id: seen.header.last_offset for seen in batches(log) if seen.header.producer_id >= 0}


def check_batches(before: list[Seen], after: list[Seen], producers: dict[int, int], end_offset: int) -> None:
    known = {identity(seen.header): seen for seen in before}
    for seen in after:
        old = known[identity(seen.header)]
        assert seen.header.records_count == len(seen.records)
        if seen.header.records_count:
            assert seen.header.max_timestamp_ms == max(record.timestamp_ms for record in seen.records)
            assert seen.header.codec == old.header.codec
            assert (
                has_horizon(seen.header)
                or all(record.value is not None for record in seen.records)
                or (seen.header.last_offset >= end_offset)
            )
        if has_horizon(old.header) and seen.records:
            assert seen.header.base_timestamp_ms == old.header.base_timestamp_ms
    last = {seen.header.last_offset for seen in after}
    assert last >= set(producers.values())


@pytest.mark.parametrize("map_entries", [10_000, 12])
@given(
    rounds=st.lists(
        st.tuples(st.lists(batch_strategy, max_size=12), st.integers(0, 3000), st.integers(0, 40)),
        min_size=1,
        max_size=4,
    ),
    segment_bytes=st.integers(300, 1500),
    chunk_bytes=st.sampled_from([100, 700, 2**19]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_left_is_what_the_model_says(
    rounds: list[Any], segment_bytes: int, chunk_bytes: int, map_entries: int
) -> None:
    site = StorageSite()
    log = site.log(segment_bytes=segment_bytes, index_interval_bytes=100)
    sequences: dict[int, int] = {}
    now_ms, first_dirty = 10_000, 0
    for produced, pause_ms, bound_back in rounds:
        for records, codec, producer in produced:
            append(log, records, codec, producer, sequences)
        now_ms += pause_ms
        before = batches(log)
        bound = max(0, log.log_end_offset - bound_back)
        sealed_end = max([0, *(s.base_offset for s in log.segments if s.base_offset <= bound)])
        producers = last_offsets(log)
        done = clean(
            log,
            site.disk,
            end_offset=bound,
            first_dirty_offset=first_dirty,
            now_ms=now_ms,
            chunk_bytes=chunk_bytes,
            segment_bytes=segment_bytes,
            map_entries=map_entries,
            last_of_producer=producers,
        )
        after = batches(log)
        assert done.unreadable_offset == -1 and first_dirty <= done.end_offset <= max(sealed_end, first_dirty)
        assert map_entries == 12 or done.end_offset == max(sealed_end, first_dirty)
        if done.end_offset > first_dirty:
            assert records_of(after) == expected_records(
                before,
                clean_end_offset=sealed_end,
                map_end_offset=done.end_offset,
                first_dirty_offset=first_dirty,
                now_ms=now_ms,
            )
        check_batches(before, after, producers, done.end_offset)
        assert [seen for seen in after if seen.header.base_offset >= sealed_end] == [
            seen for seen in before if seen.header.base_offset >= sealed_end
        ]
        check_compacted(log)
        bases = [segment.base_offset for segment in log.segments]
        first_dirty = done.end_offset
        site.config = replace(site.config, segment_bytes=segment_bytes)
        log = site.reload()
        assert batches(log) == after and [segment.base_offset for segment in log.segments] == bases
