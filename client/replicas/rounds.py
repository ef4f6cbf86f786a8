"""An audit that goes on: round by round what has come since, and what was found that had not been found before.

    rounds = Rounds(admin, AuditOptions(), run_here(admin.read_replica))
    while True:
        told = rounds.next()

A replica that lags, or cannot be read for a while, is compared from where it had come to once it has more. A topic that
was made anew, and a log that became shorter than what was compared of it, are compared whole. What is found anew is
told once, that a broker is gone or answers no longer once per time that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from strandline.client.replicas.audit import (
    AuditedPartition,
    AuditOptions,
    AuditSummary,
    Cluster,
    Results,
    looked_at,
)
from strandline.client.replicas.comparison import MAX_FINDINGS, Finding
from strandline.client.replicas.looking import AT_OFFSETS, Begin, Work, unconfirmed
from strandline.client.replicas.reading import Replica
from strandline.protocol.messages import EARLIEST_TIMESTAMP
from strandline.protocol.types import TopicPartition


class Lag(NamedTuple):
    """The replica that has come least far: `offset` is where it is, and it lacks `lag` offsets of what its leader knows
    to be committed."""

    partition: TopicPartition
    broker_id: int
    offset: int
    lag: int


class Round(NamedTuple):
    """summary: of this round alone. new: its partitions with what had not been told before, if there is anything.
    max_lag None: no replica was compared."""

    summary: AuditSummary
    new: tuple[AuditedPartition, ...]
    max_lag: Lag | None


class Rounds:
    """What was compared so far, and told. run: as of `audited`."""

    def __init__(
        self,
        admin: Cluster,
        options: AuditOptions,
        run: Callable[[list[Work]], Results],
        *,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._admin = admin
        self._options = options
        self._run = run
        self._warn = warn
        self._told: dict[Replica, list[Finding]] = {}

    def next(self) -> Round:
        """UnknownTopic, the client's errors; another try goes on where the last round has ended."""
        state = looked_at(self._admin, self._options, self._run, warn=self._warn)
        summary = state.summary()
        # What comes from now on is compared whole, whatever time the first round was to begin with.
        before, ids = self._options.begin.topic_ids, state.topic_ids()
        anew = {name for name in ids if before.get(name, ids[name]) != ids[name]}
        self._told = {replica: each for replica, each in self._told.items() if replica.partition.topic not in anew}
        begin = Begin(EARLIEST_TIMESTAMP, {**state.begin.reached, **state.reached()}, {**before, **ids})
        self._options = replace(self._options, begin=begin)
        return Round(summary, tuple(self._new(summary.partitions)), max_lag(summary))

    def _new(self, partitions: Iterable[AuditedPartition]) -> Iterable[AuditedPartition]:
        before, self._told = self._told, {}
        for partition in partitions:
            replicas = []
            for each in partition.replicas:
                replica = Replica(TopicPartition(partition.topic, partition.partition), each.broker_id)
                told = before.get(replica, [])
                new = set(unconfirmed(each.findings, told))
                known = [*(finding for finding in told if finding.kind in AT_OFFSETS), *each.findings]
                if known:
                    self._told[replica] = list(dict.fromkeys(known))[-MAX_FINDINGS:]
                replicas.append(replace(each, findings=tuple(each for each in each.findings if each in new)))
            if any(each.findings for each in replicas):
                yield replace(partition, replicas=tuple(replicas))


def max_lag(summary: AuditSummary) -> Lag | None:
    """Of all replicas that were compared; where none lags, of the first."""
    lags = [
        Lag(TopicPartition(partition.topic, partition.partition), replica.broker_id, replica.end, replica.lag)
        for partition in summary.partitions
        for replica in partition.replicas
        if replica.is_read
    ]
    return max(lags, key=lambda each: each.lag, default=None)
