"""The reference text's CSV reporter: every `kafka.metrics.polling.interval.secs` what /metrics tells goes to files.

One file per metric in the folder `broker-<id>` of `kafka.csv.metrics.dir` (brokers of one machine may have one
configuration), named as the metric and its labels, as `kafka_log_log_size.topic.partition.csv`: a line of names, then a
line for each series and time, which is seconds since 1970:

    time,topic,partition,value
    1764158400,orders,0,1815

So a metric that tells of all topics and of each of them has two files, whose lines stay as their heads say.

Nobody removes them but who reads them. They are written off the event loop. What a disk does not take is left out as a
whole, so no line is cut, and told once; the next interval tries again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from functools import partial

import trio
from prometheus_client.core import Metric

from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.disk import Disk, write_whole
from strandline.runtime.environment import Environment
from strandline.runtime.logging import Logger, RateLimited

REPORTER = "kafka.metrics.KafkaCSVMetricsReporter"
"""What `kafka.metrics.reporters` has to name."""
LANE = "metrics"
TOLD_INTERVAL_S = 3600.0
TIME = "time"
VALUE = "value"


class CsvReporter:
    """See the module. collect: all families, slice by slice."""

    def __init__(
        self, collect: Callable[[], Iterable[Metric]], config: BrokerConfig, environment: Environment, log: Logger
    ) -> None:
        self._collect = collect
        self._config = config
        self._environment = environment
        self._log = RateLimited(log, interval_s=TOLD_INTERVAL_S)

    @property
    def is_on(self) -> bool:
        config = self._config
        return config.kafka_csv_metrics_reporter_enabled and REPORTER in config.kafka_metrics_reporters

    async def run(self) -> None:
        """Until cancelled; returns at once where it is off."""
        while self.is_on:
            await trio.sleep(self._config.kafka_metrics_polling_interval_secs)
            await self.report()

    async def report(self) -> None:
        """Once."""
        lines = Lines(self._environment.wall_clock.now_ms() // 1000)
        for metric in self._collect():
            lines.add(metric)
            await trio.lowlevel.checkpoint()  # a slice at a time
        folder = f"{self._config.kafka_csv_metrics_dir}/broker-{self._config.broker_id}"
        blocking = self._environment.blocking
        append = partial(append_all, self._environment.disk, folder, lines)
        error = await blocking.run_in(LANE, append, abandon=True)
        if error is not None:
            self._log.warning(
                "csv",
                "metrics are not written; give kafka.csv.metrics.dir room, or another folder",
                folder=folder,
                error=error,
            )


class Lines:
    """What one report has to say, as text by file. Pure."""

    def __init__(self, time_s: int) -> None:
        self._time_s = time_s
        self._texts: dict[tuple[str, ...], io.StringIO] = {}
        """Name of a sample and of its labels → the lines."""

    def add(self, metric: Metric) -> None:
        """A family, or a slice of one."""
        for sample in metric.samples:
            text = self._texts.setdefault((sample.name, *sample.labels), io.StringIO())
            text.write(_line([self._time_s, *sample.labels.values(), _number(sample.value)]))

    def files(self) -> dict[str, tuple[bytes, bytes]]:
        """Name of a file → its first line, and what to append."""
        return {
            f"{'.'.join(names)}.csv": (
                _line([TIME, *names[1:], VALUE]).encode(errors="replace"),
                text.getvalue().encode(errors="replace"),
            )
            for names, text in self._texts.items()
        }


def append_all(disk: Disk, folder: str, lines: Lines) -> str | None:
    """To each file. Blocking; nobody adds to them any more. Returns what the disk said of the first that could not be
    written; the others wait for the next report, too."""
    try:
        disk.makedirs(folder)
        for name, (head, text) in lines.files().items():
            _append(disk, f"{folder}/{name}", head, text)
    except OSError as error:
        return str(error)
    return None


def _append(disk: Disk, path: str, head: bytes, lines: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        size = file.size()
        try:
            write_whole(file, lines if size else head + lines, size)
        except OSError:
            file.truncate(size)  # no half a line
            raise
    finally:
        file.close()


def _line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
