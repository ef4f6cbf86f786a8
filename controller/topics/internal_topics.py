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


MADE_BY_BROKERS: dict[str, InternalTopic] = {}
"""Name → row. Each comes with what keeps something in that topic; none does yet."""
