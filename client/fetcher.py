"""Fetching for a consumer: one request per leader under way, its answer read ahead of what is polled.

`pump` is a plain function, called whenever something changed and when the time it returned has come. A leader gets the
next fetch when the last one is answered and none of its partitions holds more than `max_partition_fetch_bytes` of
records that nobody polled: a long poll without such a partition would keep it waiting for `fetch_max_wait_ms`.
When the program seeks meanwhile, a long poll is given up. Partitions that are more than one fetch may name
(`request_bounds.MAX_ASKED`) take turns, so short that each has had one within `fetch_max_wait_ms`. Leader changes,
fencing and lost connections only cost time here; what the program must know becomes `Assigned.error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import trio

from strandline.client import request_bounds
from strandline.client.assignment import Assigned, Chunk
from strandline.client.errors import AnsweredError, OffsetOutOfRange, error_for, no_answer
from strandline.client.links import Link, Links
from strandline.client.lookup import is_retriable
from strandline.client.metadata import SILENT_AFTER_S, Metadata, PartitionView, TopicView, backoff_ms
from strandline.client.settings import ConsumerSettings
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    Message,
)
from strandline.protocol.native.frame import cut_records
from strandline.protocol.types import NO_BROKER, NO_OFFSET, NO_TOPIC_ID, TopicId, TopicPartition

PATIENCE_S = 0.02
"""How long a fetch may be under way before it counts as a long poll that waits for records."""


class _Ask(NamedTuple):
    """What a fetch asks for of one partition, and under which leader epoch the position was checked."""

    state: Assigned
    generation: int
    offset: int
    epoch: int

    @property
    def is_current(self) -> bool:
        """The answer is still wanted. Not that of a former leader, once another one has answered or the position was
        checked with it: its records were had by then, or may not be in the new leader's log."""
        state = self.state
        return (self.generation, self.offset, self.epoch) == (state.generation, state.fetch_offset, state.checked_epoch)


Asked = dict[TopicPartition, _Ask]


@dataclass(slots=True)
class _Question:
    """The fetch that is under way to one leader."""

    asked: Asked
    since: float
    is_turn: bool = False
    """Others wait for theirs: it ends soon by itself."""
    given_up: bool = False

    def covers(self, state: Assigned) -> bool:
        entry = self.asked.get(state.topic_partition)
        return entry is not None and entry.generation == state.generation


NEVER_WAS_AFTER_S = 10.0
"""An assigned topic or partition that no broker has known for so long does not exist: news of a new one travels in less
than a second, and a broker that starts learns within some."""

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
RESET_TIMESTAMPS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


def start_by_policy(state: Assigned, auto_offset_reset: str, group_id: str = "") -> None:
    """It has no position: look it up as the policy says, or have the next poll raise that there is none."""
    timestamp = RESET_TIMESTAMPS.get(auto_offset_reset)
    if timestamp is not None:
        state.ask_reset(timestamp)
        return
    where = f"group {group_id!r} has committed nothing for" if group_id else "there is no position of"
    state.wants_committed = False
    state.error = OffsetOutOfRange(
        f"{where} {state.topic_partition}, and auto_offset_reset is none; seek to where to start", NO_OFFSET
    )
    state.out_of_range = True


def _missing(topic: TopicView, partition: int, *, was_there: bool) -> AnsweredError:
    if topic.partitions:
        what = f"topic {topic.name!r}, which is assigned, has no partition {partition}"
        return error_for(
            UNKNOWN, what, detail=f"only {len(topic.partitions)} of them; assign others, or add partitions"
        )
    if was_there:
        return error_for(UNKNOWN, f"topic {topic.name!r}, which is assigned, has gone")
    detail = "no broker knows it; check the spelling, or create it"
    return error_for(UNKNOWN, f"topic {topic.name!r}, which is assigned", detail=detail)


def _out_of_range(offset: int, partition: TopicPartition, log_start: int, high_watermark: int) -> str:
    """Why nothing can be read there: where the log begins and ends is known as far as its leader said so."""
    if log_start == NO_OFFSET or high_watermark == NO_OFFSET:
        return f"offset {offset} of {partition} is outside the log"
    where = "gone from the log" if offset < log_start else "beyond the end of the log"
    return f"offset {offset} of {partition} is {where}, which holds [{log_start}, {high_watermark})"


class Fetcher:
    """Fills the chunks of `assigned`; calls `on_news` when there is something for a poll, `on_positions` when a
    position must be looked up or checked."""

    def __init__(
        self,
        settings: ConsumerSettings,
        metadata: Metadata,
        links: Links,
        *,
        wake: Callable[[], None],
        on_news: Callable[[], None],
        on_positions: Callable[[], None],
    ) -> None:
        self.assigned: Mapping[TopicPartition, Assigned] = {}
        self._settings = settings
        self._metadata = metadata
        self._links = links
        self._wake = wake
        self._on_news = on_news
        self._on_positions = on_positions
        self._busy: dict[int, _Question] = {}
        self._turns = 0
        self.fetched_bytes = 0

    def pump(self, now: float) -> float:
        """Send what fetches can be sent now; when there is more to do if nothing happens before."""
        next_time = math.inf
        by_leader: dict[int, list[tuple[Assigned, PartitionView]]] = {}
        full: set[int] = set()
        for state in self.assigned.values():
            if state.paused or state.error is not None or state.out_of_range or state.wants_committed:
                continue
            partition = self._metadata.view.partition(state.topic_partition)
            if partition is None or partition.leader == NO_BROKER:
                self._metadata.request_update()
                self._note_missing(state, partition, now)
                continue
            state.missing_since = None
            topic_id = self._metadata.view.topics[state.topic_partition.topic].topic_id
            if topic_id != state.topic_id and self._reset_if_made_anew(state, topic_id):
                continue
            if state.reset_to is not None or self._must_check(state, partition):
                self._on_positions()
                continue
            if state.retry_at > now:
                next_time = min(next_time, state.retry_at)
                continue
            if state.buffered_bytes > self._settings.max_partition_fetch_bytes:
                full.add(partition.leader)
            by_leader.setdefault(partition.leader, []).append((state, partition))
        for leader, states in by_leader.items():
            busy = self._busy.get(leader)
            if leader in full:
                continue
            if busy is None:
                self._send(self._links.to(leader), states, now)
            elif not busy.is_turn and any(state.hurried and not busy.covers(state) for state, _ in states):
                next_time = min(next_time, self._give_up_long_poll(leader, busy, now))
        for leader, question in list(self._busy.items()):
            next_time = min(next_time, self._watch(leader, question, now))
        return next_time

    def hindrance(self, state: Assigned, now: float) -> Exception | None:
        """Why nothing comes of this partition, None where nothing is known to be wrong."""
        why = self._links.hindrance(state.topic_partition)
        if why is None:
            for leader, question in self._busy.items():
                if question.covers(state) and now >= self._silent_at(question):
                    return no_answer(leader)
        return why or state.last_error

    def _silent_at(self, question: _Question) -> float:
        return question.since + self._settings.fetch_max_wait_ms / 1000 + SILENT_AFTER_S

    def _watch(self, leader: int, question: _Question, now: float) -> float:
        """The fetch is answered late: if another broker leads by now, go there. When to look again."""
        due = self._silent_at(question)
        if now < due:
            return due
        self._metadata.request_update()
        for key in question.asked:
            partition = self._metadata.view.partition(key)
            if partition is not None and partition.leader not in (NO_BROKER, leader) and not question.given_up:
                question.given_up = True
                self._links.to(leader).drop(f"no answer, and broker {partition.leader} leads now")
        return now + 1.0

    def _give_up_long_poll(self, leader: int, question: _Question, now: float) -> float:
        """Answers come in order, so only another connection helps; when that is due if not yet."""
        due = question.since + PATIENCE_S
        if due > now:
            return due
        if not question.given_up:
            question.given_up = True
            self._links.to(leader).drop("it was waiting for records that are not wanted any more")
        return math.inf

    def _note_missing(self, state: Assigned, partition: PartitionView | None, now: float) -> None:
        """A topic that stays unknown is gone, or never was, and so with a partition; the program is told. A broker that
        just started knows none yet, and news of a new one takes a moment."""
        topic = self._metadata.view.topics.get(state.topic_partition.topic)
        if topic is None or partition is not None or topic.error_code not in (0, UNKNOWN):
            state.missing_since = None
            return
        if state.missing_since is None:
            state.missing_since = now
        was_there = state.high_watermark != NO_OFFSET
        patience_s = self._settings.default_api_timeout_ms / 1000
        if now - state.missing_since >= (patience_s if was_there else min(patience_s, NEVER_WAS_AFTER_S)):
            state.missing_since = None
            state.error = _missing(topic, state.topic_partition.partition, was_there=was_there)
            self._on_news()

    def _reset_if_made_anew(self, state: Assigned, topic_id: TopicId) -> bool:
        """Where the topic was deleted and made anew under its name, an offset of the old one means nothing in it, and
        may lie in the middle of its records: the reset policy decides. Returns whether that is so."""
        before = state.topic_id
        if topic_id == NO_TOPIC_ID:
            return False
        state.topic_id = topic_id
        if before == NO_TOPIC_ID:
            return False
        state.end_loan()
        if state.fetch_offset == NO_OFFSET:
            return False
        state.refetch()
        state.high_watermark = state.log_start_offset = NO_OFFSET
        self._reset(
            state,
            f"topic {state.topic_partition.topic!r} was deleted and made anew: offset {state.position} of "
            f"{state.topic_partition} was in the old one",
        )
        if state.error is not None:
            state.position = NO_OFFSET  # of the old one: not to be told, nor committed
        return True

    @staticmethod
    def _must_check(state: Assigned, partition: PartitionView) -> bool:
        """After a leader change the new leader's log may differ from what was read (KIP-320)."""
        if state.checked_epoch == partition.leader_epoch:
            return False
        if state.last_epoch < 0 or partition.leader_epoch < 0:
            state.checked_epoch = partition.leader_epoch
            return False
        return True

    def _send(self, link: Link, states: list[tuple[Assigned, PartitionView]], now: float) -> None:
        connection = link.want()
        if connection is None:
            for state, _ in states:
                state.last_error = link.last_error or state.last_error
            return
        settings, known = self._settings, self._metadata.view.topics
        max_wait_ms = settings.fetch_max_wait_ms
        if is_turn := len(states) > request_bounds.MAX_ASKED:
            max_wait_ms //= math.ceil(len(states) / request_bounds.MAX_ASKED)
            states = self._next_turn(states)
        topics: dict[str, list[FetchPartition]] = {}
        asked: Asked = {}
        for state, partition in states:
            topic, index = state.topic_partition
            topics.setdefault(topic, []).append(
                FetchPartition(index, state.fetch_offset, settings.max_partition_fetch_bytes, partition.leader_epoch)
            )
            asked[state.topic_partition] = _Ask(state, state.generation, state.fetch_offset, state.checked_epoch)
            state.hurried = False
        request = FetchRequest(
            max_wait_ms,
            settings.fetch_min_bytes,
            settings.fetch_max_bytes,
            [
                FetchTopic(name, parts, known[name].topic_id if name in known else NO_TOPIC_ID)
                for name, parts in topics.items()
            ],
            rack_id=settings.client_rack,
        )

        question = _Question(asked, now, is_turn)

        def on_answer(answer: Message | Exception, attachments: memoryview) -> None:
            self._busy.pop(link.broker_id, None)
            self._wake()
            if question.given_up:
                return
            if isinstance(answer, FetchResponse):
                self._answered(connection.name, asked, answer, attachments)
            else:
                assert isinstance(answer, Exception)
                self._all_failed(asked, answer)

        try:
            connection.submit(request, (), settings.fetch_max_wait_ms + settings.request_timeout_ms, on_answer)
        except Exception as error:
            self._all_failed(asked, error)
        else:
            self._busy[link.broker_id] = question

    def _next_turn(self, states: list[tuple[Assigned, PartitionView]]) -> list[tuple[Assigned, PartitionView]]:
        """Those that the program waits for, then those that were asked for the longest time ago."""
        chosen = sorted(states, key=lambda item: (not item[0].hurried, item[0].turn))[: request_bounds.MAX_ASKED]
        for state, _ in chosen:
            self._turns += 1
            state.turn = self._turns
        return chosen

    # --- Answers ---

    def _answered(self, who: str, asked: Asked, answer: FetchResponse, attachments: memoryview) -> None:
        if answer.error_code:
            self._all_failed(asked, error_for(answer.error_code, "fetching", who, answer.error_message))
            return
        parts = [(topic.topic, part) for topic in answer.responses for part in topic.partitions]
        try:
            pieces = cut_records(answer, attachments)
            for (topic, part), records in zip(parts, pieces, strict=True):
                question = asked.pop(TopicPartition(topic, part.partition_index), None)
                if question is None:
                    raise RemoteProtocolError(f"records of {topic}-{part.partition_index}, which nobody asked for")
                if question.is_current:
                    self._one_answered(who, question.state, question.offset, part, records)
        except RemoteProtocolError as error:
            self._all_failed(asked, error)
            raise  # ends the connection

    def _one_answered(
        self, who: str, state: Assigned, offset: int, part: FetchPartitionData, records: memoryview | None
    ) -> None:
        code = part.error_code
        if code == ErrorCode.NONE:
            if records:
                try:
                    state.add(Chunk.cut(records, offset, part.high_watermark))
                except RemoteProtocolError as error:
                    self._failed(state, error)
                    raise
                self.fetched_bytes += len(records)
                self._on_news()
            # A high watermark that goes back is a broker's mistake or an old leader's: never shown (invariant 8).
            state.high_watermark = max(state.high_watermark, part.high_watermark)
            state.log_start_offset = max(state.log_start_offset, part.log_start_offset)
            state.failures, state.last_error = 0, None
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            state.out_of_range = True
            state.told_limits = part.log_start_offset, part.high_watermark
            self.reset_when_drained(state)
        else:
            if part.current_leader_id != NO_BROKER:
                self._metadata.hint_leader(state.topic_partition, part.current_leader_id, part.current_leader_epoch)
            self._failed(state, error_for(code, f"fetching from {state.topic_partition}", who))

    def reset_when_drained(self, state: Assigned) -> None:
        """The fetch offset is outside the log: once everything before it is handed out, the reset policy decides."""
        if not state.out_of_range or state.has_records or state.error is not None:
            return
        self._reset(
            state,
            _out_of_range(state.fetch_offset, state.topic_partition, *state.told_limits),
        )

    def _reset(self, state: Assigned, why: str) -> None:
        """Look for another position, or have the next poll raise why there is none."""
        policy = RESET_TIMESTAMPS.get(self._settings.auto_offset_reset)
        if policy is None:
            state.error = OffsetOutOfRange(f"{why}; seek, or set auto_offset_reset", state.fetch_offset)
            state.out_of_range = True
        else:
            state.ask_reset(policy)
            self._on_positions()
        self._on_news()

    def _all_failed(self, asked: Asked, error: Exception) -> None:
        for question in asked.values():
            if question.is_current:
                self._failed(question.state, error)

    def _failed(self, state: Assigned, error: Exception) -> None:
        state.last_error = error
        if getattr(error, "invalid_metadata", isinstance(error, RemoteProtocolError)):
            self._metadata.request_update()
        if is_retriable(error):
            state.failures += 1
            wait_ms = backoff_ms(self._settings, state.failures, self._links.environment)
            state.retry_at = trio.current_time() + wait_ms / 1000
        else:
            state.error = error
            self._on_news()
