"""Compacted logs in front of the fixture's own claims and of `dump-log`: what other readers are tested with."""

from __future__ import annotations

import itertools

import pytest

from strandline.protocol.records.batch import read_header
from strandline.storage.cleaning.rewrite import has_horizon
from strandline.storage.inspection.dump import DumpOptions, dump_file
from strandline.storage.inspection.dump_entry import DumpEntry
from support.cleaning import batches, check_compacted, records_of
from support.compacted import DELETE_RETENTION_MS, NOW_MS, batches_of, compacted_log
from support.storage_site import FOLDER, file_names

CODECS = pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])


@CODECS
def test_a_compacted_log_has_all_that_compaction_leaves(codec: str) -> None:
    _, log, kept = compacted_log(codec)
    assert records_of(batches(log)) == kept
    check_compacted(log)
    headers = [read_header(batch) for batch in batches_of(log)]
    empty = [header for header in headers if header.records_count == 0]
    assert {header.producer_id for header in empty} >= {20, 21, 34}
    assert [header for header in headers if 0 < header.records_count <= header.last_offset_delta]
    assert any(later.base_offset > header.next_offset for header, later in itertools.pairwise(headers))
    assert any(has_horizon(header) for header in headers)
    assert any(record.value is None for record in kept)


@CODECS
def test_dump_log_shows_horizons_and_empty_batches_and_no_damage(codec: str) -> None:
    site, log, kept = compacted_log(codec)
    log.flushed(log.flush_plan(final=True)())
    printed: list[DumpEntry] = []
    for suffix in (".log", ".index", ".timeindex"):
        for name in file_names(site.disk, suffix):
            for options in (DumpOptions(deep_iteration=True), DumpOptions(print_data_log=True)):
                entries = list(dump_file(site.disk, f"{FOLDER}/{name}", options))
                assert not [entry.line for entry in entries if entry.is_damage]
            printed += entries
    records = [entry.fields for entry in printed if entry.kind == "record"]
    assert [(each["offset"], each["timestamp_ms"], each["key"], each["value"]) for each in records] == [
        (record.offset, record.timestamp_ms, record.key, record.value) for record in kept
    ]
    shown = [entry for entry in printed if entry.kind == "batch"]
    horizons = [entry for entry in shown if entry.fields["delete_horizon_ms"] is not None]
    assert {entry.fields["delete_horizon_ms"] for entry in horizons} == {NOW_MS + DELETE_RETENTION_MS}
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + DELETE_RETENTION_MS}]" in horizons[0].line
    assert len([entry for entry in shown if entry.fields["count"] == 0]) >= 3
