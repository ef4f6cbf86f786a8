"""Partitions that stay offline for want of brokers: who is missed, and an error line for those that wait for long.

Rules:
* What is noted costs no text and no line per partition: it happens on the way to a new leader.
* An ordinary start of all brokers says nothing: until the last of them is back its partitions wait, too.
* All that wait share a line, which names the first few of them and every broker that is missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline.controller.term import Term

GRACE_S = 30.0
"""So long a partition waits before a line is due to it."""
MAX_PARTITIONS_NAMED = 5

ABSENT = "one of the brokers {brokers} must come back: only they have all that was acknowledged"
ABSENT_OR_LOSSY = (
    "every in-sync replica may have lost data: brokers {brokers} must come back, or their loss be accepted"
)
SILENT = "brokers {brokers} live and do not say where their logs end"
UNDECIDED = "the in-sync replicas ({brokers}) may have lost data, and unclean.recovery.strategy is none"


class Waits:
    """Of one term; what is said, and when, ends with it."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._brokers: dict[TopicPartition, tuple[int, ...]] = {}
        self._texts: dict[TopicPartition, str] = {}
        self._since: dict[TopicPartition, float] = {}
        self._said: dict[TopicPartition, tuple[str, tuple[int, ...]]] = {}
        self._due: dict[TopicPartition, float] = {}

    def note(self, partitions: Mapping[TopicPartition, tuple[int, ...]], text: str = ABSENT) -> None:
        """These wait for these brokers. Never waits."""
        if not partitions:
            return
        self._brokers.update(partitions)
        self._texts.update(dict.fromkeys(partitions, text))
        self._since = {**dict.fromkeys(partitions, trio.current_time()), **self._since}
        if not self._due:
            self._look_later()

    def is_led(self, tp: TopicPartition) -> None:
        """It waits no more."""
        self._since.pop(tp, None)
        self._said.pop(tp, None)

    def why(self, tp: TopicPartition) -> str | None:
        """Whom it waits for, and what for; None where it does not wait."""
        if tp not in self._since:
            return None
        state = self._term.context.states.get(tp)
        text = self._texts[tp]
        if text == ABSENT and not (state is not None and state.whole):
            text = ABSENT_OR_LOSSY
        refusals = {broker: self._term.context.offline_replicas.get((broker, tp)) for broker in self._brokers[tp]}
        return text.format(brokers=", ".join(map(str, self._brokers[tp]))) + "".join(
            f"; broker {broker} does not serve its replica: {why}" for broker, why in refusals.items() if why
        )

    def _look_later(self) -> None:
        self._due = dict(self._since)
        self._term.later(self._look, GRACE_S)

    async def _look(self) -> None:
        """Say it of what has waited since the last look."""
        due, self._due = self._due, {}
        offline = dict.fromkeys(self._term.context.offline_partitions())
        self._since = {tp: since for tp, since in self._since.items() if tp in offline}
        self._brokers = {tp: self._brokers[tp] for tp in self._since}
        self._texts = {tp: self._texts[tp] for tp in self._since}
        self._said = {tp: reason for tp, reason in self._said.items() if tp in self._since}
        self._say([tp for tp, since in due.items() if self._since.get(tp) == since])
        if self._since:
            self._look_later()

    def _say(self, partitions: Sequence[TopicPartition]) -> None:
        """Once of each partition and set of brokers."""
        news = {tp: (self._texts[tp], self._brokers[tp]) for tp in partitions}
        news = {tp: reason for tp, reason in news.items() if self._said.get(tp) != reason}
        if not news:
            return
        self._said.update(news)
        named = list(news)[:MAX_PARTITIONS_NAMED]
        example = f"{named[0].topic}:{named[0].partition}"
        self._term.log.error(
            "partitions stay offline",
            count=len(news),
            brokers=sorted({broker for _, brokers in news.values() for broker in brokers}),
            first={str(tp): self.why(tp) for tp in named},
            remedy=f"strandline recover {example} shows what each replica has, and what helps",
        )
