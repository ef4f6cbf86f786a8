"""Where `strandline consume --group` begins with each partition that the group gives it: behind what was committed.

Rule: what was committed may have gone from the log since. Who follows the partitions (`LostOffsets`) is therefore told
that place, and not only where the first records come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from strandline.cli.consume_topics import start_line
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer
    from strandline.cli.lost_offsets import LostOffsets

PATIENCE_MS = 5_000
"""How long nothing is read while the group's offsets are asked for."""


class GroupStarts:
    """Of one member. `is_told`: on stderr, too."""

    def __init__(self, consumer: Consumer, lost: LostOffsets, *, is_told: bool) -> None:
        self._consumer = consumer
        self._lost = lost
        self._is_told = is_told

    def begin(self, partitions: Sequence[TopicPartition]) -> None:
        """These are this member's from now on."""
        from strandline.client.errors import ClientError

        if not partitions:
            return
        try:
            committed = self._consumer.committed(partitions, timeout_ms=PATIENCE_MS)
        except ClientError:  # the consumer finds its positions all the same, or says why not
            return
        starts = {each: at.offset for each, at in committed.items() if at is not None}
        self._lost.follow(starts)
        for each in sorted(partitions) if self._is_told else ():
            if each in starts:
                line = start_line(each, starts[each], None)
            else:
                line = f"the group has committed nothing of {each}: auto.offset.reset says where it begins"
            click.echo(f"strandline: {line}", err=True)

    def end(self, partitions: Sequence[TopicPartition]) -> None:
        """They go to others, or have gone."""
        self._lost.forget(partitions)
