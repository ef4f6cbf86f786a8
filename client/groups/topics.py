"""Which topics a consumer has subscribed to, by name or by pattern, and how many partitions topics have: as metadata
has it, without what a broker does not know that has just started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import trio

from strandline.client.errors import InvalidTopic
from strandline.client.metadata import Metadata
from strandline.protocol.errors import ErrorCode
from strandline.protocol.topic_name import InvalidTopicName, check_topic_name, is_topic_name

GONE_AFTER_S = 10.0
"""A topic that no answer has for so long has been deleted. A broker that has just started knows no topic yet, and a
rebalance for that would stop a group for nothing."""


class SubscribedTopics:
    """Of one consumer."""

    def __init__(self, metadata: Metadata, answer_within_s: float) -> None:
        self._metadata = metadata
        self._answer_within_s = answer_within_s
        self._names: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._others: tuple[str, ...] = ()
        """Topics of other members, for whom this one assigns."""
        self._seen: dict[str, tuple[int, float | None]] = {}
        """Topic → how many partitions it has, and since when it has been missing."""

    def subscribe(self, names: Iterable[str], pattern: re.Pattern[str] | None) -> None:
        """InvalidTopic for a name that no topic can have: it would spoil the questions about all others."""
        wanted = frozenset(names)
        for name in sorted(wanted):
            try:
                check_topic_name(name)
            except InvalidTopicName as refusal:
                raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, str(refusal)) from None
        self._names, self._pattern = wanted, pattern
        self._follow()

    def end(self) -> None:
        self._others = ()
        self.subscribe((), None)

    def _follow(self) -> None:
        self._metadata.follow({*self._names, *self._others}, everything=self._pattern is not None)

    def names(self) -> frozenset[str]:
        """What is subscribed to now. A pattern matches whole names, and none of the cluster's own topics."""
        pattern = self._pattern
        if pattern is None:
            return self._names
        topics = self._metadata.view.topics
        candidates = dict.fromkeys((*topics, *self._seen))
        return frozenset(
            name
            for name in self.counts(sorted(candidates))
            if is_topic_name(name) and pattern.fullmatch(name) and not (name in topics and topics[name].is_internal)
        )

    def counts(self, names: Iterable[str]) -> dict[str, int]:
        """Those that exist → how many partitions they have."""
        now, topics = trio.current_time(), self._metadata.view.topics
        found: dict[str, int] = {}
        for name in names:
            topic = topics.get(name)
            count, missing_since = self._seen.get(name, (0, None))
            if topic is not None and topic.partitions:
                count, missing_since = len(topic.partitions), None
            else:
                missing_since = now if missing_since is None else missing_since
            if count and (missing_since is None or now - missing_since < GONE_AFTER_S):
                found[name] = count
                self._seen[name] = (count, missing_since)
            else:
                self._seen.pop(name, None)
        return found

    async def layout(self, names: Sequence[str]) -> Mapping[str, int]:
        """`counts`, once an answer had a word about each; of what is not known by then nothing is assigned, until it
        is."""
        self._others = tuple(names)
        self._follow()
        deadline = trio.current_time() + self._answer_within_s
        metadata = self._metadata
        while any(name not in metadata.view.topics for name in names):
            if not await metadata.wait_for_answer(deadline):
                break
            if self._pattern is not None and metadata.last_error is None:
                break  # that was an answer about all topics
        return self.counts(names)


def compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """ValueError for what is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
