"""Each partition of the cluster by the names of kafka_exporter, told once: by the broker that leads it, or by the
controller where nobody does.

Who leads by its own account is left out where the controller has told this broker of a later epoch: another one leads.
A broker that hears of no controller may tell of what is led elsewhere by now, as it would take it for its own in any
other answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import MAX_SERIES
from strandline.broker.metrics.families import SLICE_SAMPLES, Labelled, gauges
from strandline.broker.metrics.of_controller import Leaderless
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.protocol.types import NO_BROKER


class OfPartitions:
    """A source. leaderless: what the controller has found lately, if it is here. is_per_partition: whether partitions
    have series of their own."""

    def __init__(
        self,
        replicas: Replicas,
        leaderless: Callable[[], Sequence[Leaderless]],
        is_per_partition: Callable[[], bool],
    ) -> None:
        self._replicas = replicas
        self._leaderless = leaderless
        self._is_per_partition = is_per_partition

    def __call__(self) -> Iterator[Metric]:
        if not self._is_per_partition():
            return
        led: list[Partition] = []
        for number, each in enumerate(list(self._replicas.partitions.values()), 1):
            if each.leadership is not None:
                led.append(each)
            if number % (SLICE_SAMPLES * 4) == 0:  # without a sample: for the loop to turn
                yield Metric("kafka_topic_partition_current_offset", _OF_LED["current_offset"][0], "gauge")
        leaderless = self._leaderless()
        for name, (text, figure) in _OF_LED.items():
            family = f"kafka_topic_partition_{name}"
            told: list[Partition | Leaderless] = [*led]
            if name in _OF_LEADERLESS:
                told += leaderless
            rows = self._rows(told, figure, _OF_LEADERLESS.get(name))
            yield from gauges(family, text, ("topic", "partition"), rows, MAX_SERIES)

    def _rows(
        self,
        partitions: Iterable[Partition | Leaderless],
        of_led: Callable[[Partition, Leadership], float],
        of_leaderless: Callable[[Leaderless], float] | None,
    ) -> Iterator[Labelled | None]:
        """None: one that is not told, see `gauges`."""
        for each in partitions:
            topic, index = each.topic_partition
            if isinstance(each, Leaderless):
                hosted = self._replicas.partitions.get(each.topic_partition)
                if of_leaderless is not None and (hosted is None or hosted.leadership is None):
                    yield (topic, str(index)), float(of_leaderless(each))
                else:
                    yield None
                continue
            leadership = each.leadership
            known = self._replicas.metadata.partition(topic, index)
            if leadership is None or (known is not None and known.leader_epoch > leadership.leader_epoch):
                yield None  # it has gone since the scrape began, or goes
            else:
                yield (topic, str(index)), float(of_led(each, leadership))


_OF_LED: dict[str, tuple[str, Callable[[Partition, Leadership], float]]] = {
    "current_offset": ("Where the partition ends for consumers", lambda each, _: each.high_watermark),
    "oldest_offset": ("Where the partition begins", lambda each, _: each.log.log_start_offset),
    "replicas": ("Replicas of the partition", lambda _, leads: len(leads.replicas)),
    "in_sync_replica": ("Replicas that are in sync", lambda _, leads: len(leads.isr)),
    "leader": ("The id of the broker that leads; -1: none does", lambda _, leads: leads.broker_id),
    "leader_is_preferred": ("1: the first replica leads", lambda _, leads: leads.replicas[0] == leads.broker_id),
    "under_replicated_partition": (
        "1: replicas lack in the ISR, also those that are being added",
        lambda _, leads: len(leads.isr) < len(leads.replicas),
    ),
}
_OF_LEADERLESS: dict[str, Callable[[Leaderless], float]] = {
    "replicas": lambda each: each.replicas,
    "in_sync_replica": lambda each: each.in_sync,
    "leader": lambda _: NO_BROKER,
    "leader_is_preferred": lambda _: 0,
    "under_replicated_partition": lambda _: 1,
}
