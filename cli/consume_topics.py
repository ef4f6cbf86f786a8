"""Which topics `strandline consume` reads: those that are named, or all that match a pattern; and what comes later.

Rules: a pattern matches whole names, and none of the cluster's own topics. Where the read has no end, partitions and
topics that come later are found within some seconds and read from their beginning: nobody has asked to miss the first
records of a topic because it was made a moment ago.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.consume_start import chosen_partitions
from strandline.cli.options import legal_topic
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin, Consumer

LOOK_EVERY_S = 5.0
"""How soon what is new is read; and how old the consumer's metadata may be."""

LOOK_MS = 500
"""How long nothing is read meanwhile, at most, should nobody know what is asked for."""


def named_topics(ctx: click.Context, parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """Of `-t a -t b,c`: each once. UsageError for a name that no topic can have."""
    return tuple(dict.fromkeys(legal_topic(name) for text in given for name in text.split(",")))


def compiled_pattern(ctx: click.Context, parameter: click.Parameter, given: str | None) -> re.Pattern[str] | None:
    """UsageError for what is no regular expression."""
    try:
        return None if given is None else re.compile(given)
    except re.error as error:
        raise click.UsageError(f"--include '{given}' is no regular expression: {error}") from None


class TopicsToRead:
    """Of one command line without a group. `admin`: who knows all topics, None where they are named. `timeout_ms`: when
    the command ends if no record comes."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        numbers: Sequence[int],
        pattern: re.Pattern[str] | None,
        admin: Admin | None,
        monotonic: Callable[[], float],
        timeout_ms: int | None = None,
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._numbers = numbers
        self._pattern = pattern
        self._admin = admin
        self._monotonic = monotonic
        self._look_ms = min(LOOK_MS, timeout_ms or LOOK_MS)
        self._due_at = monotonic() + LOOK_EVERY_S
        self._assigned: list[TopicPartition] = []

    def partitions(self) -> list[TopicPartition]:
        """All that are there now. ClickException for a named topic that is not."""
        names = self._names()
        self._assigned = [each for name in names for each in chosen_partitions(self._consumer, name, self._numbers)]
        return list(self._assigned)

    def look(self) -> None:
        """Now and then: read what is new, and forget topics that matched and have gone. A topic of which nobody knows
        just now, also one that was deleted, keeps nothing from the others; what hinders it is told by others."""
        from strandline.client.errors import ClientError

        now = self._monotonic()
        if now < self._due_at or self._numbers:
            return
        self._due_at = now + LOOK_EVERY_S
        try:
            names = self._names(timeout_ms=self._look_ms)
            found = self._found(names, now + self._look_ms / 1000)
            known = set(self._assigned)
            new = [each for each in found if each not in known]
            if new or (self._pattern is not None and len(found) < len(self._assigned)):
                self._consumer.assign(found)
                self._assigned = found
                for each in new:
                    self._consumer.seek_to_beginning(each)
        except ClientError:
            return

    def _found(self, names: Sequence[str], deadline: float) -> list[TopicPartition]:
        """The partitions of these topics; of one that nobody knows those that it had."""
        from strandline.client.errors import ClientError

        had: dict[str, list[TopicPartition]] = {}
        for each in self._assigned:
            had.setdefault(each.topic, []).append(each)
        found: list[TopicPartition] = []
        for name in names:
            left_ms = max(0.0, (deadline - self._monotonic()) * 1000)  # what is known is told at once all the same
            try:
                numbers = self._consumer.partitions_for_topic(name, timeout_ms=left_ms)
            except ClientError:
                found += had.get(name, [])
            else:
                found += [TopicPartition(name, number) for number in numbers]
        return found

    def _names(self, timeout_ms: float | None = None) -> Sequence[str]:
        if self._admin is None or self._pattern is None:
            return self._topics
        known = self._admin.describe_topics(timeout_ms=timeout_ms)
        return sorted(name for name in known if self._pattern.fullmatch(name) and not known[name].is_internal)


def start_line(topic_partition: TopicPartition, start: int, stop: int | None) -> str:
    """For people: which offsets are read of it."""
    return f"{topic_partition} is read from offset {start} on" + (f", before {stop}" if stop is not None else "")


def subscription(topics: Sequence[str], pattern: re.Pattern[str] | None) -> dict[str, Any]:
    """As a consumer in a group takes it."""
    return {"pattern": pattern} if pattern is not None else {"topics": list(topics)}
