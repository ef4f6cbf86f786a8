"""A log as compaction leaves it, for tests of everything that reads one: batches with fewer records than offsets, gaps,
empty batches, tombstones in batches whose base timestamp is a delete horizon."""

from __future__ import annotations

from strandline.protocol.records import Record, build_batch
from strandline.protocol.records.batch import scan
from strandline.protocol.records.validation import validate_produced
from strandline.storage.cleaning.facts import last_offsets_of_producers
from strandline.storage.log.checked_append import append_checked
from strandline.storage.log.log import Log
from support.cleaning import batches, clean, records_of
from support.storage_site import StorageSite, raw

NOW_MS = 50_000
DELETE_RETENTION_MS = 1000
BATCHES = 60
RECORDS = 4


def compacted_log(codec: str = "none") -> tuple[StorageSite, Log, list[Record]]:
    """(its storage, the log, the records that it has to have: by the model, not by what is in it)."""
    site = StorageSite()
    log = site.log(segment_bytes=600, index_interval_bytes=0, cleanup_policy=("compact",))
    for number in range(BATCHES):
        # Producers 20, 21 … write once each, and what they wrote is overwritten: an empty batch stays of each.
        producer = (number, 0, 0) if number in (20, 21, 34) else None
        records = [(1000 + number, key, value) for key, value in _records(number)]
        batch = validate_produced(memoryview(bytearray(build_batch(records, codec, producer))), max_batch_bytes=2**20)
        append_checked(log, [batch], 0)
    before = records_of(batches(log))
    done = clean(
        log,
        site.disk,
        now_ms=NOW_MS,
        delete_retention_ms=DELETE_RETENTION_MS,
        last_of_producer=last_offsets_of_producers(log, log.log_end_offset),
    )
    newest = {record.key: record.offset for record in before if record.offset < done.end_offset}
    kept = [each for each in before if each.offset >= done.end_offset or each.offset >= newest[each.key]]
    return site, log, kept


def batches_of(log: Log) -> list[bytes]:
    """The batches of a log, byte for byte, as fetches read them."""
    data = raw(log)
    return [data[at : at + header.size_bytes] for at, header in scan(memoryview(data))]


def _records(number: int) -> list[tuple[bytes, bytes | None]]:
    """Few keys that come again, some that stay for good, some that are deleted."""
    records: list[tuple[bytes, bytes | None]] = [(b"k%d" % (place % 3), b"%d" % number) for place in range(RECORDS)]
    if number % 12 == 5:
        records[1] = b"once-%d" % number, b"stays"
    if number % 12 == 7:
        records[2] = b"gone-%d" % (number // 24), None
    return records
