"""Which topic names exist. A name becomes part of a path on disk and in ZooKeeper, so this is an allow-list.

Names that differ only in "." and "_" would share the names of their metrics, so the second one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_TOPIC_NAME_LENGTH = 249
"""Characters: with "-", a partition number and a suffix it still fits a file name of 255 bytes."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""The brokers' own: clients may read them, and neither create nor delete them nor write to them or delete from them."""

BROKERS_OWN = "is the brokers' own: clients may read it, and not create, delete or write to it"
"""What a refusal says, after the topic's name."""

MAX_SHOWN_LENGTH = 300

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def shortened(name: str) -> str:
    """A name that somebody asked for, for an answer or a log: it may be anything, and stand there many times."""
    return name[:MAX_SHOWN_LENGTH]


class InvalidTopicName(ValueError):
    """A name that no topic may have; the text says why."""


def check_topic_name(name: str) -> None:
    """InvalidTopicName unless `name` is 1 to 249 of [a-zA-Z0-9._-] and neither "." nor ".."."""
    if not name:
        raise InvalidTopicName("the topic name is empty: give it 1 to 249 characters")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise InvalidTopicName(
            f"topic name {name[:32]!r}… has {len(name)} characters, the limit is {MAX_TOPIC_NAME_LENGTH}: shorten it"
        )
    if name in (".", ".."):
        raise InvalidTopicName(f"topic name {name!r} is a path: choose another")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(f"topic name {name!r} may only have letters, digits, '.', '_' and '-' (ASCII)")


def is_topic_name(name: str) -> bool:
    """Whether a topic may have it."""
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True


class TopicNames:
    """Names that are taken, each looked at once: a question costs the same however many there are."""

    def __init__(self, existing: Iterable[str]) -> None:
        self._by_metric = {name.replace(".", "_"): name for name in existing}

    def add(self, name: str) -> None:
        self._by_metric[name.replace(".", "_")] = name

    def twin_of(self, name: str) -> str | None:
        """A taken name that differs from `name` in "." and "_" only, or None."""
        other = self._by_metric.get(name.replace(".", "_"))
        return None if other == name else other
