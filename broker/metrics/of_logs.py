"""Disks, and what is done to logs in the background, by the names of Kafka's LogManager and LogCleaner."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.families import counter, gauge, gauges, quantiles
from strandline.broker.upkeep.cleaning import Cleaning
from strandline.broker.upkeep.housekeeping import Housekeeping
from strandline.storage.manager.log_manager import LogManager

_CLEANER = "kafka_log_logcleaner"
_CLEANER_MANAGER = "kafka_log_logcleanermanager"


class OfLogs:
    """A source."""

    def __init__(self, logs: LogManager, housekeeping: Housekeeping, cleaning: Cleaning) -> None:
        self._logs = logs
        self._housekeeping = housekeeping
        self._cleaning = cleaning

    def __call__(self) -> Iterator[Metric]:
        times = self._housekeeping.flush_times
        text = "Milliseconds that it took to make a log durable"
        rows = [((), times.recent(trio.current_time()), times.lifetime().count)]
        yield from quantiles("kafka_log_logflushstats_logflushrateandtimems", text, (), rows)
        offline = set(self._logs.directories.offline_paths)
        text = "Log directories that are out of service"
        yield gauge("kafka_log_logmanager_offlinelogdirectorycount", text, len(offline))
        paths = sorted({*(directory.path for directory in self._logs.directories), *offline})
        yield from gauges(
            "kafka_log_logmanager_logdirectoryoffline",
            "1: this log directory is out of service",
            ("logDirectory",),
            [((path,), float(path in offline)) for path in paths],
        )
        yield from self._cleaner(paths)

    def _cleaner(self, paths: list[str]) -> Iterator[Metric]:
        counts, now_s = self._cleaning.counts, trio.current_time()
        for name, text, value in (
            (f"{_CLEANER}_max_clean_time_secs", "The longest of each cleaner's last cleaning", counts.longest_s),
            (
                f"{_CLEANER}_cleaner_recopy_percent",
                "What each cleaner's last cleaning kept, by bytes",
                counts.recopy_ratio * 100,
            ),
            (
                f"{_CLEANER}_max_buffer_utilization_percent",
                "Of the memory for keys (log.cleaner.dedupe.buffer.size), in each cleaner's last cleaning",
                counts.map_used * 100,
            ),
            (
                f"{_CLEANER}_max_compaction_delay_secs",
                "How long a log had waited longer than max.compaction.lag.ms when a cleaner last looked",
                counts.overdue_s,
            ),
            (f"{_CLEANER}_deadthreadcount", "Cleaners that died: none ever, such a fault ends the broker", 0),
            (f"{_CLEANER_MANAGER}_max_dirty_percent", "Of the log cleaned last, before", counts.dirtiest_ratio * 100),
            (
                f"{_CLEANER_MANAGER}_time_since_last_run_ms",
                "Since a cleaner last looked for a log to clean",
                round(counts.since_look_s(now_s) * 1000),
            ),
        ):
            yield gauge(name, text, value)
        yield counter("strandline_cleaner_cleanings", "Cleanings of a log that were finished", counts.cleanings)
        yield counter("strandline_cleaner_read_bytes", "Bytes that these read", counts.bytes_read)
        yield counter("strandline_cleaner_written_bytes", "Bytes that these wrote", counts.bytes_written)
        left_alone = self._cleaning.left_alone()
        text = "Logs that cannot be compacted from some offset on"
        rows = [((path,), float(sum(each.log_dir == path for each in left_alone))) for path in paths]
        yield from gauges(f"{_CLEANER_MANAGER}_uncleanable_partitions_count", text, ("logDirectory",), rows)
        sizes = dict.fromkeys(paths, 0)
        for each in left_alone:
            sizes[each.log_dir] = sizes.get(each.log_dir, 0) + self._cleaning.left_alone_bytes(each)
        text = "Bytes of logs that cannot be compacted, from there on"
        yield from gauges(
            f"{_CLEANER_MANAGER}_uncleanable_bytes",
            text,
            ("logDirectory",),
            [((path,), float(size)) for path, size in sizes.items()],
        )
