"""The configuration of each topic that this broker hosts: its overrides in ZooKeeper over the broker's own values.

They are read before a topic is hosted, and again when ZooKeeper says that they changed (`config_changes`). What is not
known, not yet or not any more, counts as unreadable: nothing is deleted by a default that the topic may override
(`runtime.config.topic` has the rules). What is not understood is told, once for as long as it stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog
import trio

from strandline.protocol.types import NO_TOPIC_ID, TopicId
from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.standing import Standing, read_overrides
from strandline.runtime.config.topic import TopicConfig, not_honoured, read_topic_config
from strandline.runtime.coordination import Coordination

Topic = tuple[str, TopicId]
"""Name and id: one that is created anew has a configuration of its own."""
TOPICS_PER_STEP = 200
"""Resolved without letting others run: some milliseconds."""


class TopicConfigs:
    """See the module."""

    def __init__(
        self, config: CurrentConfig, coordination: Coordination, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self._config = config
        self._coordination = coordination
        self._log = log
        self._lock = trio.Lock()  # of two readings, the one that began first must not be taken for the news
        self._standing: dict[Topic, Standing] = {}
        self._known: dict[Topic, TopicConfig] = {}
        self._troubled: dict[Topic, tuple[str, ...]] = {}
        self._watchers: list[Callable[[BrokerConfig], None]] = []

    def watch(self, told: Callable[[BrokerConfig], None]) -> None:
        """told: called with the broker's configuration after topics, hosted here or not, may have got another one."""
        self._watchers.append(told)

    def _tell(self) -> None:
        for told in self._watchers:
            told(self._config.value)

    def get(self, topic: Topic) -> TopicConfig:
        known = self._known.get(topic)
        return read_topic_config(self._config.value, None).config if known is None else known

    def current(self, name: str, topic_id: TopicId) -> TopicConfig | None:
        """Of a replica that is hosted; None where nothing is known of its topic any more."""
        return self._known.get((name, topic_id)) or self._known.get((name, NO_TOPIC_ID))

    def forget(self, topic: Topic) -> None:
        for known in (self._standing, self._known, self._troubled):
            known.pop(topic, None)

    def troubled(self) -> list[str]:
        """Topics that keep everything until their configuration is mended."""
        return [name for name, _ in self._troubled]

    async def load(self, topics: Iterable[Topic]) -> None:
        """Read what is not known yet, in waves. CoordinationError."""
        topics = list(topics)
        if any(topic not in self._known for topic in topics):
            async with self._lock:
                await self._read([topic for topic in topics if topic not in self._known])

    async def read_again(self, names: Collection[str] | None = None) -> None:
        """Of the topics that are known those with one of these names, or all. CoordinationError."""
        async with self._lock:
            await self._read([topic for topic in self._known if names is None or topic[0] in names])
        self._tell()

    async def resolve_again(self) -> None:
        """The broker's own values changed."""
        async with self._lock:
            for count, topic in enumerate(list(self._standing), 1):
                if topic in self._standing:
                    self._resolve(topic, self._standing[topic])
                if count % TOPICS_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()
        self._tell()

    async def _read(self, topics: list[Topic]) -> None:
        if not topics:
            return
        were_known = [topic in self._known for topic in topics]
        found = await read_overrides(self._coordination, [ConfigZnode.path(name) for name, _ in topics])
        for count, (topic, was_known, standing) in enumerate(zip(topics, were_known, found, strict=True), 1):
            if not was_known or topic in self._known:  # else it was deleted meanwhile
                self._resolve(topic, standing)
            if count % TOPICS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()

    def _resolve(self, topic: Topic, standing: Standing) -> None:
        reading = read_topic_config(self._config.value, standing.overrides)
        self._known[topic] = reading.config
        trouble = tuple(str(error) for error in reading.unusable) + ((standing.why,) if standing.why else ())
        if trouble and self._troubled.get(topic) != trouble:
            self._log.error(
                "nothing of this topic is deleted or compacted until its configuration is mended",
                topic=topic[0],
                why=trouble,
            )
        if trouble:
            self._troubled[topic] = trouble
        else:
            self._troubled.pop(topic, None)
        without_effect = {error.key: error.why for error in reading.unknown}
        without_effect |= not_honoured(standing.overrides or ())
        if without_effect and self._standing.get(topic) != standing:
            self._log.warning("topic keys without effect", topic=topic[0], keys=without_effect)
        self._standing[topic] = standing
