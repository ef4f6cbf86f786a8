"""How many partitions the fetches of a session have read, topic by topic. Pure.

Figures count every partition that a fetch reads, also where nothing happened to it and nobody looks:

    a fetch                        one more in `fetches`, however many partitions the session has
    partitions come or go          what was read of their topic until then goes to its counts
    a scrape, the session's end    what was read of every topic until then does
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.broker.replication.topic_counts import TopicTraffic

TOPICS_PER_STEP = 1000


class SessionReads:
    """Of one session."""

    __slots__ = ("_topics", "_traffic", "fetches")

    def __init__(self, traffic: TopicTraffic) -> None:
        self.fetches = 0
        """Incremental ones, each of which reads all partitions that the session has then."""
        self._traffic = traffic
        self._topics: dict[str, tuple[int, int]] = {}
        """Partitions in the session, and up to which of its fetches they are counted."""

    def change(self, topic: str, by: int) -> None:
        """The session has so many partitions of it more, from the next fetch on."""
        partitions, since = self._topics.get(topic, (0, self.fetches))
        self._traffic.rows[topic].fetch_requests += partitions * (self.fetches - since)
        if partitions + by:
            self._topics[topic] = partitions + by, self.fetches
        else:
            self._topics.pop(topic, None)

    def settle(self) -> Iterator[None]:
        """All that was read is in the counts, once it is advanced to its end: step by step, between which partitions
        may come and go."""
        for number, topic in enumerate(list(self._topics), 1):
            self.change(topic, 0)
            if number % TOPICS_PER_STEP == 0:
                yield
