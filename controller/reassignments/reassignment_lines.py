"""What the controller's log tells of reassignments: that one began, was done, was cancelled, could not be begun."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import structlog

from strandline.controller.reassignments.reassignment_store import Move
from strandline.protocol.topic_name import shortened
from strandline.protocol.types import TopicPartition

DETAILED_MOVES = 100
"""Above so many at once they share a line, which names the first of them: a line each would hold up the others."""
MAX_REASON_LENGTH = 300


class ReassignmentLines:
    """One term's."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger) -> None:
        self._log = log

    def begun(self, moves: Mapping[TopicPartition, Move]) -> None:
        """The intent stands in ZooKeeper."""
        by_event: dict[str, dict[TopicPartition, Move]] = {}
        for tp, move in moves.items():
            is_cancelled = move.before.is_moving and set(move.after.target) == set(move.after.original)
            by_event.setdefault("cancelled" if is_cancelled else "begun", {})[tp] = move
        for event, some in by_event.items():
            self._tell(event, some)

    def done(self, moves: Mapping[TopicPartition, Move]) -> None:
        self._tell("done", moves)

    def not_begun(self, refused: Mapping[TopicPartition, str]) -> None:
        """What a tool asked for in the znode cannot be done, and why; of many the first are named."""
        for tp, why in islice(refused.items(), DETAILED_MOVES):
            why = why[:MAX_REASON_LENGTH]
            self._log.error("reassignment refused", topic=shortened(tp.topic), partition=tp.partition, why=why)
        if len(refused) > DETAILED_MOVES:
            self._log.error("reassignments refused", count=len(refused), not_named=len(refused) - DETAILED_MOVES)

    def _tell(self, event: str, moves: Mapping[TopicPartition, Move]) -> None:
        if len(moves) > DETAILED_MOVES:
            self._log.info(f"reassignments {event}", count=len(moves), first=str(next(iter(moves))))
            return
        for tp, move in moves.items():
            self._log.info(
                f"reassignment {event}",
                topic=tp.topic,
                partition=tp.partition,
                target=list(move.after.target),
                replicas=list(move.after.assigned),
                adding=list(move.after.adding),
                removing=list(move.after.removing),
                previous=list(move.before.assigned),
            )
