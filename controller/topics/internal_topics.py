"""The brokers' own topics, as the controller makes them: a row for each that this version serves.

Whoever needs one names it and nothing else (`AutomaticCreations.add` on any broker): then it is planned, written and
led as any topic is, only of what its row says. So it does not matter who asked first, be it a client that guessed the
name. Of a topic without a row, or with any wish of one's own beside the name, a request is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from strandline.runtime.config.broker import BrokerConfig


class InternalTopic(NamedTuple):
    """partitions, replication_factor: the broker's keys that say how many. configs: the topic's, by the broker's."""

    partitions: str
    replication_factor: str
    configs: Callable[[BrokerConfig], dict[str, str]]


def _offsets_configs(config: BrokerConfig) -> dict[str, str]:
    """The last commit of each partition stays; batches stay as the coordinator compressed them."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }


MADE_BY_BROKERS: dict[str, InternalTopic] = {
    "__consumer_offsets": InternalTopic(
        "offsets.topic.num.partitions", "offsets.topic.replication.factor", _offsets_configs
    ),
}
"""Name → row. Each comes with what keeps something in that topic."""
