"""How large a batch may be in each topic that a task writes to.

A batch of the sink's (`batch_size`, half a megabyte) is larger than some topics take (`max.message.bytes`), and their
brokers refuse it however small its rows are. Java's producer divides a batch that was refused. Here records have their
numbers by then, and exactly once rests on these, so the limit is asked for before the first batch is made.
"""

from __future__ import annotations

from strandline import Admin
from strandline.client.errors import ClientError, UnknownTopic
from strandline.runtime.clock import pause

KEY = "max.message.bytes"
TIMEOUT_MS = 5_000
PAUSE_S = 0.1
ATTEMPTS = 50
"""Brokers hear of a topic that was just created one after the other."""


class TopicLimits:
    """Each topic is asked about once. Raises nothing: where the cluster does not tell, it still refuses a batch that is
    too large."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._known: dict[str, int | None] = {}

    def of(self, topic: str) -> int | None:
        """In bytes; None where the cluster does not say."""
        if topic not in self._known:
            self._known[topic] = self._asked(topic)
        return self._known[topic]

    def _asked(self, topic: str) -> int | None:
        try:
            for attempts_left in reversed(range(ATTEMPTS)):
                found = self._admin.describe_topic_configs([topic], [KEY], timeout_ms=TIMEOUT_MS)[topic]
                if not isinstance(found, UnknownTopic):
                    break
                if attempts_left:
                    pause(PAUSE_S)
        except ClientError:
            return None
        if isinstance(found, ClientError):
            return None
        return next((int(each.value) for each in found if each.name == KEY and each.value is not None), None)
