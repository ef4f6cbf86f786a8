"""What `strandline consume --group` commits: what was printed, and nothing else. Who reads in the group next gets the
record behind the last line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.idle_readers import Speaking
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer
    from strandline.cli.group_starts import GroupStarts

EVERY_S = 5.0
"""How often, while records come; before partitions go and at the end in any case."""

PATIENCE_MS = 5_000
"""How long somebody who ends the command waits for that."""


def group_settings(group: str | None, instance_id: str | None) -> dict[str, Any]:
    """Of the consumer. UsageError for an instance without a group."""
    if group is None:
        if instance_id is not None:
            raise click.UsageError("--group-instance-id is for a member of a --group")
        return {}
    return {
        "group_id": group,
        "group_instance_id": instance_id or "",
        "enable_auto_commit": False,
    }


class GroupCommits:
    """Of one member. `printed`: partition → the offset behind its last line, filled by whoever prints."""

    def __init__(
        self,
        consumer: Consumer,
        printed: dict[TopicPartition, int],
        monotonic: Callable[[], float],
        speaking: Speaking = contextlib.nullcontext,
    ) -> None:
        self._speaking = speaking
        self._consumer = consumer
        self._printed = printed
        self._monotonic = monotonic
        self._due_at = monotonic() + EVERY_S
        self._underway: dict[TopicPartition, int] = {}
        """Being committed without waiting; the outcome is not known yet."""

    def subscribe(self, starts: GroupStarts, **what: Any) -> None:
        """starts: is told which partitions come and go. what: `topics` or `pattern`."""

        def revoke(partitions: Sequence[TopicPartition]) -> None:
            self.commit()
            starts.end(partitions)

        def lose(partitions: Sequence[TopicPartition]) -> None:
            self._take()
            starts.end(partitions)

        self._consumer.subscribe(**what, on_assigned=starts.begin, on_revoked=revoke, on_lost=lose)

    def commit_now_and_then(self) -> None:
        """Without waiting; what fails is told and committed again later."""
        now = self._monotonic()
        if self._printed and not self._underway and now >= self._due_at:
            self._due_at = now + EVERY_S
            offsets = self._underway = self._take()
            self._consumer.commit_nowait(offsets, lambda _, error: self._done(offsets, error))

    def _done(self, offsets: dict[TopicPartition, int], error: Exception | None) -> None:
        if self._underway is not offsets:  # the partitions went meanwhile; before that all was committed, or told
            return
        self._underway = {}
        if error is not None:
            with self._speaking():
                click.echo(f"not committed yet: {_shown(offsets)} ({error})", err=True)
            for partition, offset in offsets.items():
                self._printed.setdefault(partition, offset)

    def commit(self) -> None:
        """What is not committed yet, or not known to be; says so where that fails."""
        from strandline.client.errors import ClientError

        if offsets := self._take():
            try:
                self._consumer.commit(offsets, timeout_ms=PATIENCE_MS)
            except ClientError as error:
                with self._speaking():
                    click.echo(f"not committed, so these records come again: {_shown(offsets)} ({error})", err=True)

    def _take(self) -> dict[TopicPartition, int]:
        offsets = {**self._underway, **self._printed}
        self._underway = {}
        self._printed.clear()
        return offsets


def _shown(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{partition} before {offset}" for partition, offset in sorted(offsets.items()))
