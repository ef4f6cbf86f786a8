"""Which topics `strandline consume` reads: those that are named, or all that match a pattern; what comes later,
and what goes.

Rules: a pattern matches whole names, and none of the cluster's own topics. Where the read has no end, partitions and
topics that come later are found within some seconds and read from their beginning: nobody has asked to miss the first
records of a topic because it was made a moment ago. What no broker knows for `GONE_AFTER_S` has gone: that is told
once, and the rest is read on. Once nothing that was named is left, the command ends with an error; a pattern may match
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.consume_start import chosen_partitions
from strandline.cli.gone_topics import Known, Missing, nothing_left, numbers_of, tell_gone
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
        self.follows_new = False
        """Whether what comes later is read, too."""
        self.tells_new = False
        """Whether that is told on stderr."""
        self.gone: set[TopicPartition] = set()
        """What was read and has gone."""
        self.unknown: set[TopicPartition] = set()
        """That, and what may have gone."""
        self._consumer = consumer
        self._topics = topics
        self._numbers = numbers
        self._pattern = pattern
        self._admin = admin
        self._monotonic = monotonic
        self._look_ms = min(LOOK_MS, timeout_ms or LOOK_MS)
        self._due_at = monotonic() + LOOK_EVERY_S
        self._assigned: list[TopicPartition] = []
        self._missing = Missing[TopicPartition]()

    def partitions(self) -> list[TopicPartition]:
        """All that are there now. ClickException for a named topic that is not."""
        names = self._names()
        self._assigned = [each for name in names for each in chosen_partitions(self._consumer, name, self._numbers)]
        return list(self._assigned)

    def look(self) -> None:
        """Now and then: read what is new, and leave what has gone; what else hinders a topic is told by others.
        ClickException where nothing is left."""
        from strandline.client.errors import ClientError

        now = self._monotonic()
        if now < self._due_at:
            return
        self._due_at = now + LOOK_EVERY_S
        try:
            known = self._known(now)
            missing = {each for each in self._assigned if _is_missing(each, known)}
            self.unknown -= set(self._assigned) - missing
            self.unknown |= missing
            gone = set(self._missing.gone(missing, now))
            left = [each for each in self._assigned if each not in gone]
            new = self._new(known)
            if gone or new:
                self._consumer.assign([*left, *new])
                self._assigned = [*left, *new]
                for each in new:
                    self._consumer.seek_to_beginning(each)
                    if self.tells_new:
                        click.echo(f"strandline: {each} is new, and read from its beginning on", err=True)
        except ClientError:
            return
        if gone:
            self.gone |= gone
            self._tell(gone, known)

    def _known(self, now: float) -> Known:
        names = self._names(timeout_ms=self._look_ms)
        known = numbers_of(self._consumer, names, now + self._look_ms / 1000, self._monotonic)
        unnamed = dict.fromkeys(each.topic for each in self._assigned if each.topic not in names)
        return {**known, **dict.fromkeys(unnamed, ())}

    def _new(self, known: Known) -> list[TopicPartition]:
        if not self.follows_new or self._numbers:
            return []
        read = set(self._assigned)
        there = [TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers]
        return [each for each in there if each not in read]

    def _tell(self, gone: set[TopicPartition], known: Known) -> None:
        topics = sorted({each.topic for each in gone if not known[each.topic]})
        parts = sorted(each for each in gone if known[each.topic])
        self._topics = [name for name in self._topics if name not in topics]
        if not self._assigned and self._pattern is None:
            raise nothing_left(topics or list(map(str, parts)))
        tell_gone("topic", topics)
        tell_gone("partition", list(map(str, parts)))
        if not self._assigned and self._pattern is not None:
            text = f"no topic matches '{self._pattern.pattern}' any more; those that appear are read"
            click.echo(f"strandline: {text}", err=True)

    def _names(self, timeout_ms: float | None = None) -> Sequence[str]:
        if self._admin is None or self._pattern is None:
            return self._topics
        known = self._admin.describe_topics(timeout_ms=timeout_ms)
        return sorted(name for name in known if self._pattern.fullmatch(name) and not known[name].is_internal)


class TopicsOfGroup:
    """Those that are named to a member of a group, which finds and leaves them itself: here it is told what has gone.
    `timeout_ms`: as above."""

    def __init__(
        self, consumer: Consumer, topics: Sequence[str], monotonic: Callable[[], float], timeout_ms: int | None
    ) -> None:
        self._consumer = consumer
        self._topics = list(topics)
        self._monotonic = monotonic
        self._look_ms = min(LOOK_MS, timeout_ms or LOOK_MS)
        self._due_at = monotonic() + LOOK_EVERY_S
        self._missing = Missing[str]()

    def look(self) -> None:
        """Now and then. ClickException where nothing is left."""
        now = self._monotonic()
        if not self._topics or now < self._due_at:
            return
        self._due_at = now + LOOK_EVERY_S
        known = numbers_of(self._consumer, self._topics, now + self._look_ms / 1000, self._monotonic)
        gone = self._missing.gone((name for name, numbers in known.items() if not numbers), now)
        self._topics = [name for name in self._topics if name not in gone]
        if gone and not self._topics:
            raise nothing_left(gone)
        tell_gone("topic", gone)


def _is_missing(partition: TopicPartition, known: Known) -> bool:
    return partition.topic in known and partition.partition not in known[partition.topic]


def start_line(topic_partition: TopicPartition, start: int, stop: int | None) -> str:
    """For people: which offsets are read of it."""
    return f"{topic_partition} is read from offset {start} on" + (f", before {stop}" if stop is not None else "")


def subscription(topics: Sequence[str], pattern: re.Pattern[str] | None) -> dict[str, Any]:
    """As a consumer in a group takes it."""
    return {"pattern": pattern} if pattern is not None else {"topics": list(topics)}
