"""The configuration of each topic that this broker hosts: its overrides in ZooKeeper over the broker's own values.

They are read before a topic is hosted. What is not known, not yet or not any more, counts as unreadable: nothing is
deleted by a default that the topic may override (`runtime.config_topic` has the rules).
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from strandline.protocol.types import TopicId
from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config import BrokerConfig, TopicConfig, TopicReading, not_honoured_yet, read_topic_config
from strandline.runtime.config_standing import read_overrides
from strandline.runtime.coordination import Coordination

Topic = tuple[str, TopicId]
"""Name and id: one that is created anew has a configuration of its own."""


class TopicConfigs:
    """See the module."""

    def __init__(
        self, config: BrokerConfig, coordination: Coordination, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._config = config
        self._coordination = coordination
        self._log = log
        self._known: dict[Topic, TopicConfig] = {}

    async def load(self, topics: Iterable[Topic]) -> None:
        """Read what is not known yet, in waves. CoordinationError."""
        missing = [topic for topic in topics if topic not in self._known]
        if not missing:
            return
        paths = [ConfigZnode.path(name) for name, _ in missing]
        for topic, overrides in zip(missing, await read_overrides(self._coordination, paths, self._log), strict=True):
            reading = read_topic_config(self._config, overrides)
            self._tell(topic[0], overrides or {}, reading)
            self._known[topic] = reading.config

    def get(self, topic: Topic) -> TopicConfig:
        known = self._known.get(topic)
        return read_topic_config(self._config, None).config if known is None else known

    def forget(self, topic: Topic) -> None:
        self._known.pop(topic, None)

    def _tell(self, name: str, overrides: Iterable[str], reading: TopicReading) -> None:
        without_effect = {error.key: error.why for error in reading.unknown}
        without_effect |= dict.fromkeys(not_honoured_yet(overrides), "not honoured yet by this version")
        if without_effect:
            self._log.warning("topic keys without effect", topic=name, keys=without_effect)
        if reading.unusable:
            self._log.error(
                "nothing of this topic is deleted or compacted until its configuration is mended",
                topic=name,
                unusable=[str(error) for error in reading.unusable],
            )
