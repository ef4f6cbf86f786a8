"""The indicators of a broker's load, from two looks at its `/metrics`. Pure: texts in, figures out.

What the broker tells of itself comes before what its machine tells: it is what moving partitions changes, and brokers
that share a machine differ in it. Where a broker has no such figure, the machines' figures stand for it, those of all
brokers: one is not compared with the other. Devices that lead nowhere (`lo`) do not count. A counter that went down
belongs to a broker that was started anew: what it counts is not known, and nothing else stands for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from strandline.protocol.types import TopicPartition

_OF_TOPICS = "kafka_server_brokertopicmetrics_"
_LOG_END = "kafka_log_log_logendoffset"
_NODE = "strandline_node_"
_OWN_DISK = "strandline_process_disk_"
_PREFIXES = (_OF_TOPICS, _LOG_END, _NODE, _OWN_DISK, "process_")
"""Lines of other families are not even parsed: there may be a hundred thousand."""

MOST = 2.0**64
"""Counters and sizes are whole numbers of so many bits at most; what is larger, negative or no number is no figure."""

Labels = Mapping[str, str]


class NoMetrics(ValueError):
    """This is no exposition of metrics, or of nothing that a broker's load is made of."""


@dataclass(frozen=True, slots=True)
class Look:
    """A broker's figures at one moment. at_s: on a clock that does not jump. samples: name → (labels, value), empty
    where none of them is a figure."""

    at_s: float
    samples: Mapping[str, list[tuple[Labels, float]]]

    def sum(self, name: str, keep: Callable[[Labels], bool] = lambda labels: True) -> float | None:
        found = [value for labels, value in self.samples.get(name, ()) if keep(labels)]
        return sum(found) if found else None


def parsed(text: str, at_s: float) -> Look:
    """NoMetrics: not the text format of Prometheus, cut off, or without a figure that an indicator is made of."""
    if text and not text.endswith(("\n", "# EOF")):
        raise NoMetrics("the text is cut off: its last line has no end")
    kept = [line for line in text.split("\n") if line.startswith(_PREFIXES)]
    samples: dict[str, list[tuple[Labels, float]]] = {}
    try:
        for family in text_string_to_metric_families("\n".join(kept) + "\n"):
            for sample in family.samples:
                of_name = samples.setdefault(sample.name, [])
                if 0 <= sample.value <= MOST:
                    of_name.append((sample.labels, sample.value))
    except ValueError as error:
        raise NoMetrics(f"no metrics in the format of Prometheus: {error}") from None
    if not any(samples.get(source.name) for each in INDICATORS for source in each.sources):
        raise NoMetrics("there are no figures of a broker")
    return Look(at_s, samples)


class Passed(NamedTuple):
    """Two looks at a broker, one after the other."""

    before: Look
    after: Look

    def rate(self, name: str, keep: Callable[[Labels], bool] = lambda labels: True) -> float | None:
        """Per second; None where it is not told, or was begun anew."""
        was, now = self.before.sum(name, keep), self.after.sum(name, keep)
        lasted_s = self.after.at_s - self.before.at_s
        if was is None or now is None or now < was or lasted_s <= 0:
            return None
        return (now - was) / lasted_s

    def rate_of_broker(self, name: str) -> float | None:
        """Of a figure of topics: the series without a topic, or all of them."""
        whole = self.rate(_OF_TOPICS + name, lambda labels: not labels.get("topic"))
        return self.rate(_OF_TOPICS + name) if whole is None else whole

    def busiest_device(self, name: str) -> float | None:
        """The highest rate of a figure that each device has."""
        devices = sorted({labels.get("device", "") for labels, _ in self.after.samples.get(name, ())})
        rates = [self.rate(name, partial(_is_of_device, device)) for device in devices]
        return max((rate for rate in rates if rate is not None), default=None)


def _is_of_device(device: str, labels: Labels) -> bool:
    return labels.get("device", "") == device


# --- Indicators ------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """figure: of a broker, None where it is not known; made of the samples of this name, and maybe others."""

    name: str
    figure: Callable[[Passed], float | None]

    def is_in(self, passed: Passed) -> bool:
        """Where that is so and the figure is not known all the same, the broker was started anew."""
        return self.name in passed.before.samples or self.name in passed.after.samples


class Indicator(NamedTuple):
    """`unit`: "" for a number, "bytes", "bytes/s", or "share" of 1. `sources`: the first that all brokers tell.
    `idle_below`: in that unit; what is less on every broker is what an idle one does now and then (a checkpoint, a look
    at `/metrics`), and who happened to do it between two looks says nothing of the load."""

    name: str
    unit: str
    meaning: str
    sources: tuple[Source, ...] = ()
    idle_below: float = 0.0


def _of_network(direction: str) -> Source:
    name = f"{_NODE}network_{direction}_bytes_total"
    return Source(name, lambda passed: passed.rate(name, lambda labels: labels.get("device") != "lo"))


def _of_topics(direction: str) -> Source:
    """What clients sent or got, and other brokers."""

    def told(passed: Passed) -> float | None:
        of_clients = passed.rate_of_broker(f"bytes{direction}_total")
        return (
            None
            if of_clients is None
            else of_clients + (passed.rate_of_broker(f"replicationbytes{direction}_total") or 0)
        )

    return Source(f"{_OF_TOPICS}bytes{direction}_total", told)


_PROCESSORS = f"{_NODE}cpu_seconds_total"
_MEMORY = f"{_NODE}memory_memtotal_bytes"
_DISKS = f"{_NODE}disk_io_time_seconds_total"


def _waiting_processors(passed: Passed) -> float | None:
    """The share of the machine's processors."""
    whole, part = passed.rate(_PROCESSORS), passed.rate(_PROCESSORS, lambda labels: labels.get("mode") == "iowait")
    return part / whole if whole and part is not None else None


def _used_processors(passed: Passed) -> float | None:
    return passed.rate(_PROCESSORS, lambda labels: labels.get("mode") not in ("idle", "iowait"))


def _used_memory(passed: Passed) -> float | None:
    whole = passed.after.sum(_MEMORY)
    free = passed.after.sum(f"{_NODE}memory_memavailable_bytes")
    return None if whole is None or free is None or free > whole else whole - free


def _rate(name: str) -> Source:
    return Source(name, lambda passed: passed.rate(name))


def _now(name: str) -> Source:
    return Source(name, lambda passed: passed.after.sum(name))


PARTITIONS, LEADERS = "partitions", "leaders"
CPU, BYTES_IN, BYTES_OUT, READ, WRITTEN = "cpuUsed", "nwBytesIn", "nwBytesOut", "ioRead", "ioWrite"
IDLE_PROCESSORS, IDLE_BYTES_S, IDLE_SHARE = 0.1, 10 * 1024, 0.05

INDICATORS: tuple[Indicator, ...] = (
    Indicator(PARTITIONS, "", "Replicas that it holds"),
    Indicator(LEADERS, "", "Partitions that it leads"),
    Indicator(
        CPU,
        "",
        "Processors in use",
        (_rate("process_cpu_seconds_total"), Source(_PROCESSORS, _used_processors)),
        IDLE_PROCESSORS,
    ),
    Indicator(
        BYTES_IN,
        "bytes/s",
        "Received from clients and brokers",
        (_of_topics("in"), _of_network("receive")),
        IDLE_BYTES_S,
    ),
    Indicator(
        BYTES_OUT,
        "bytes/s",
        "Sent to clients and brokers",
        (_of_topics("out"), _of_network("transmit")),
        IDLE_BYTES_S,
    ),
    Indicator(
        READ,
        "bytes/s",
        "Read from disk",
        (_rate(f"{_OWN_DISK}read_bytes_total"), _rate(f"{_NODE}disk_read_bytes_total")),
        IDLE_BYTES_S,
    ),
    Indicator(
        WRITTEN,
        "bytes/s",
        "Written to disk",
        (_rate(f"{_OWN_DISK}written_bytes_total"), _rate(f"{_NODE}disk_written_bytes_total")),
        IDLE_BYTES_S,
    ),
    Indicator(
        "iowait",
        "share",
        "Its machine's processors that wait for disks",
        (Source(_PROCESSORS, _waiting_processors),),
        IDLE_SHARE,
    ),
    Indicator(
        "ioutil",
        "share",
        "Time that its machine's busiest disk is at work",
        (Source(_DISKS, lambda passed: passed.busiest_device(_DISKS)),),
        IDLE_SHARE,
    ),
    Indicator(
        "memUsed", "bytes", "Memory in use", (_now("process_resident_memory_bytes"), Source(_MEMORY, _used_memory))
    ),
    Indicator("fd", "", "Open files and sockets", (_now("process_open_fds"), _now(f"{_NODE}filefd_allocated"))),
)
"""What is told of the cluster's partitions (the first two) comes from its metadata."""
IDLE_BELOW: Mapping[str, float] = MappingProxyType({each.name: each.idle_below for each in INDICATORS})
"""Indicator → its `idle_below`."""


def indicators_of(passed: Mapping[int, Passed]) -> dict[str, dict[int, float | None]]:
    """Indicator → broker → figure, of those indicators that have sources; None where the broker does not tell what the
    indicator goes by."""
    return {each.name: _of_one_source(each.sources, passed) for each in INDICATORS if each.sources}


def _of_one_source(sources: Iterable[Source], passed: Mapping[int, Passed]) -> dict[int, float | None]:
    best: dict[int, float | None] = dict.fromkeys(passed)
    for source in sources:
        found = {broker_id: source.figure(of) for broker_id, of in passed.items()}
        unknown = [broker_id for broker_id, figure in found.items() if figure is None]
        if not unknown or any(source.is_in(passed[broker_id]) for broker_id in unknown):
            return found
        if all(figure is None for figure in best.values()):
            best = found
    return best


# --- Partitions ------------------------------------------------------------------------------------------------------


class Traffic(NamedTuple):
    """Of one partition, between its leader and clients, bytes per second."""

    in_bytes_s: float
    out_bytes_s: float


def traffic_of(passed: Passed, led: Iterable[TopicPartition]) -> dict[TopicPartition, Traffic]:
    """What the clients of a broker write and read, by partition. Brokers count by topic; the partitions that it leads
    have parts of that as their logs grew, or equal ones where that is not known or none did."""
    of_topic: dict[str, list[TopicPartition]] = {}
    for tp in led:
        of_topic.setdefault(tp.topic, []).append(tp)
    grown = _growth(passed)
    rates = {direction: _by_topic(passed, f"{_OF_TOPICS}bytes{direction}_total") for direction in ("in", "out")}
    found: dict[TopicPartition, Traffic] = {}
    for topic, partitions in of_topic.items():
        parts = [grown.get(tp, 0.0) for tp in partitions]
        whole = sum(parts)
        for tp, part in zip(partitions, parts, strict=True):
            share = part / whole if whole else 1 / len(partitions)
            found[tp] = Traffic(rates["in"].get(topic, 0.0) * share, rates["out"].get(topic, 0.0) * share)
    return found


def _by_topic(passed: Passed, name: str) -> dict[str, float]:
    lasted_s = passed.after.at_s - passed.before.at_s
    return {key[0]: change / lasted_s for key, change in _changes(passed, name, ("topic",)).items()}


def _growth(passed: Passed) -> dict[TopicPartition, float]:
    """Records, between the looks."""
    return {
        TopicPartition(topic, int(number)): change
        for (topic, number), change in _changes(passed, _LOG_END, ("topic", "partition")).items()
        if number.isdigit()
    }


def _changes(passed: Passed, name: str, labels: tuple[str, ...]) -> dict[tuple[str, ...], float]:
    """By the values of the labels; what went down or is new is not in it."""

    def values(look: Look) -> dict[tuple[str, ...], float]:
        return {
            tuple(each[label] for label in labels): value
            for each, value in look.samples.get(name, ())
            if all(each.get(label) for label in labels)
        }

    before = values(passed.before)
    return {
        key: value - before[key] for key, value in values(passed.after).items() if before.get(key, math.inf) <= value
    }
