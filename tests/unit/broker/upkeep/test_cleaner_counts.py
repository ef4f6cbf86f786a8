"""What cleaners have done, as figures tell it."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from strandline.broker.metrics.of_logs import OfLogs
from strandline.broker.upkeep.cleaner_counts import CleanerCounts, LastCleaning
from support.replica_site import T0, ReplicaSite, batch


async def test_the_last_cleaning_of_each_cleaner_counts_as_in_kafka(autojump_clock: MockClock) -> None:
    counts = CleanerCounts()
    counts.finished(0, LastCleaning(90.0, 100, 100, 0.9), 0.5)
    counts.finished(0, LastCleaning(3.0, 300, 30, 0.1), 0.6)
    counts.finished(1, LastCleaning(5.0, 100, 90, 0.2), 0.7)
    assert (counts.longest_s, counts.map_used, counts.recopy_ratio) == (5.0, 0.2, 120 / 400)
    assert (counts.cleanings, counts.bytes_read, counts.dirtiest_ratio) == (3, 500, 0.7)
    counts.ended(1)
    assert (counts.longest_s, counts.map_used) == (3.0, 0.1)


async def test_how_long_a_log_was_overdue_is_told_as_a_cleaner_saw_it_last(autojump_clock: MockClock) -> None:
    late = {"max.compaction.lag.ms": "1000", "min.cleanable.dirty.ratio": "1", "cleanup.policy": "compact"}
    site = ReplicaSite(topic={**late, "segment.bytes": "200"})
    await site.lead(replicas=(1,), isr=(1,))
    now_ms = site.environment.wall_clock.now_ms()
    for _ in range(3):
        site.produce((T0, batch(timestamp_ms=now_ms - 8000)), acks=1)
    log = site.partition().log
    log.flushed(log.flush_plan()())
    cleaning = site.cleaning()
    await cleaning._choose(claim=False)
    source = OfLogs(site.logs, site.housekeeping(), cleaning)
    found = {sample.name: sample.value for family in source() for sample in family.samples}
    assert found["kafka_log_logcleaner_max_compaction_delay_secs"] == pytest.approx(7, abs=0.1)
