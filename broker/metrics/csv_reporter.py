"""The reference text's CSV reporter: every `kafka.metrics.polling.interval.secs` what /metrics tells goes to files.

One file per metric in the folder `broker-<id>` of `kafka.csv.metrics.dir` (brokers of one machine may have one
configuration), named as the metric and its labels, as `kafka_log_log_size.topic.partition.csv`: a line of names, then a
line for each series and time, which is seconds since 1970:

    time,topic,partition,value
    1764158400,orders,0,1815

So a metric that tells of all topics and of each of them has two files, whose lines stay as their heads say. Names of
groups and clients may hold anything: their control characters are escaped (`\\n`, `\\r`, `\\x00`; a backslash is two of
them), so that each line of a file is a row.

Nobody removes them but who reads them. They are written off the event loop. What a disk does not take is left out as a
whole, so no line is cut; the other files go on, and the next interval tries again. The log has a line when that begins,
when it concerns other files or has another cause, and when it is over.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import trio
from prometheus_client.core import Metric

from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.disk import NO_SPACE, Disk, write_whole
from strandline.runtime.environment import Environment
from strandline.runtime.logging import Logger, escape

REPORTER = "kafka.metrics.KafkaCSVMetricsReporter"
"""What `kafka.metrics.reporters` has to name."""
LANE = "metrics"
TIME = "time"
VALUE = "value"


class Unwritten(NamedTuple):
    """What a report could not write: these files, or the folder where that is what has to be mended, and why."""

    paths: tuple[str, ...]
    why: str


class CsvReporter:
    """See the module. collect: all families, slice by slice."""

    def __init__(
        self, collect: Callable[[], Iterable[Metric]], config: BrokerConfig, environment: Environment, log: Logger
    ) -> None:
        self._collect = collect
        self._config = config
        self._environment = environment
        self._log = log
        self._folder = f"{config.kafka_csv_metrics_dir}/broker-{config.broker_id}"
        self._unwritten: Unwritten | None = None
        """Of the report before."""

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
        append = partial(append_all, self._environment.disk, self._folder, lines)
        unwritten = await self._environment.blocking.run_in(LANE, append, abandon=True)
        if unwritten != self._unwritten:
            self._unwritten = unwritten
            self._tell(unwritten)

    def _tell(self, unwritten: Unwritten | None) -> None:
        if unwritten is None:
            self._log.info("metrics are written again", folder=self._folder)
        elif unwritten.paths == (self._folder,):
            text = "metrics are not written; give kafka.csv.metrics.dir room, or another folder"
            self._log.warning(text, folder=self._folder, error=unwritten.why)
        else:
            text = "some metrics are not written; remove those files, or let the broker write them"
            first, count = unwritten.paths[0], len(unwritten.paths)
            self._log.warning(text, first_file=first, files=count, error=unwritten.why)


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
            text.write(_line([self._time_s, *map(_escaped, sample.labels.values()), _number(sample.value)]))

    def files(self) -> dict[str, tuple[bytes, bytes]]:
        """Name of a file → its first line, and what to append."""
        return {
            f"{'.'.join(names)}.csv": (
                _line([TIME, *names[1:], VALUE]).encode(errors="replace"),
                text.getvalue().encode(errors="replace"),
            )
            for names, text in self._texts.items()
        }


def append_all(disk: Disk, folder: str, lines: Lines) -> Unwritten | None:
    """To each file that can be written. Blocking; nobody adds to them any more."""
    files = lines.files()
    try:
        disk.makedirs(folder)
    except OSError as error:
        return Unwritten((folder,), _why(error))
    failed: dict[str, OSError] = {}
    for name, (head, text) in files.items():
        path = f"{folder}/{name}"
        try:
            _append(disk, path, head, text)
        except OSError as error:
            failed[path] = error
    if not failed:
        return None
    full = [error for error in failed.values() if error.errno in NO_SPACE]
    is_of_all = bool(full) or len(failed) == len(files)
    return Unwritten((folder,) if is_of_all else tuple(failed), _why((full or [*failed.values()])[0]))


def _why(error: OSError) -> str:
    """Without the file, which may be another one in each report of one fault."""
    number = error.errno or 0
    return f"[Errno {number}] {os.strerror(number)}"


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


def _escaped(label: str) -> str:
    return escape(label.replace("\\", "\\\\"))
