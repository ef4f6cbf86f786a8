"""Fetch sessions, pure: which requests go on with which session, who gives way to whom, and what is news."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from strandline.broker.handlers import fetch_sessions
from strandline.broker.handlers.fetch_sessions import (
    EVICTABLE_AFTER_S,
    LAST_EPOCH,
    FetchSession,
    FetchSessions,
    Read,
    next_epoch,
)
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from strandline.protocol.types import NO_TOPIC, NO_TOPIC_ID

SLOTS = 3


def reads(count: int, topic: str = "t", topic_id: bytes = NO_TOPIC_ID) -> list[Read]:
    return [Read(topic, topic_id, FetchPartition(index, 0, 1000)) for index in range(count)]


def request(
    session_id: int,
    epoch: int,
    *indexes: int,
    forgotten: tuple[int, ...] = (),
    topic: str = "t",
    topic_id: bytes = NO_TOPIC_ID,
    offset: int = 0,
) -> FetchRequest:
    topics = [FetchTopic(topic, [FetchPartition(index, offset, 1000) for index in indexes], topic_id)]
    gone = [ForgottenTopic(topic, list(forgotten), topic_id)] if forgotten else []
    return FetchRequest(
        0, 1, 1000, topics if indexes else [], session_id=session_id, session_epoch=epoch, forgotten_topics_data=gone
    )


class Sessions(FetchSessions):
    def begin(
        self, count: int = 1, now: float = 0.0, *, slots: int = SLOTS, by_ids: bool = False
    ) -> FetchSession | None:
        named = reads(count, NO_TOPIC, b"i" * 16) if by_ids else reads(count)
        return self.create(named, by_ids=by_ids, slots=slots, now=now)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(Random(1), TopicTraffic())


def refusal(sessions: FetchSessions, message: FetchRequest) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        sessions.go_on(message, 0.0)
    return caught.value.code


def indexes(session: FetchSession) -> list[int]:
    return [partition.wanted.partition for partition in session.partitions.values()]


# --- going on --------------------------------------------------------------------------------------------------


def test_an_incremental_fetch_adds_changes_and_forgets(sessions: Sessions) -> None:
    session = sessions.begin(3)
    session.due.clear()
    assert sessions.go_on(request(session.session_id, 1, 1, 7, forgotten=(0,), offset=5), 0.0) is session
    assert indexes(session) == [1, 2, 7]
    assert [(part.wanted.partition, part.wanted.fetch_offset) for part in session.due] == [(1, 5), (7, 5)]
    assert sessions.partitions_count == 3


def test_only_the_next_epoch_goes_on(sessions: Sessions) -> None:
    session = sessions.begin()
    for epoch in (2, LAST_EPOCH, -2):
        assert refusal(sessions, request(session.session_id, epoch)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.go_on(request(session.session_id, 1), 0.0) is session
    assert refusal(sessions, request(session.session_id, 1)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.go_on(request(session.session_id, 2), 0.0) is session


def test_the_epoch_behind_the_last_is_1(sessions: Sessions) -> None:
    session = sessions.begin()
    session.epoch = LAST_EPOCH
    assert sessions.go_on(request(session.session_id, LAST_EPOCH), 0.0) is session
    assert sessions.go_on(request(session.session_id, 1), 0.0) is session


def test_an_unknown_session_is_not_found(sessions: Sessions) -> None:
    session = sessions.begin()
    assert refusal(sessions, request(session.session_id + 1, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.end(session.session_id)
    assert refusal(sessions, request(session.session_id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions_count) == (0, 0)


@pytest.mark.parametrize("by_ids", [True, False])
def test_a_session_stays_with_ids_or_with_names(by_ids: bool, sessions: Sessions) -> None:
    session = sessions.begin(2, by_ids=by_ids)
    named = {"topic": "t"} if by_ids else {"topic": NO_TOPIC, "topic_id": b"i" * 16}
    for message in (
        request(session.session_id, 1, 1, **named),
        request(session.session_id, 1, forgotten=(1,), **named),
    ):
        assert refusal(sessions, message) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert len(session.partitions) == 2 and session.epoch == 1


def test_topics_of_two_ids_are_two(sessions: Sessions) -> None:
    session = sessions.begin(1, by_ids=True)
    sessions.go_on(request(session.session_id, 1, 0, topic=NO_TOPIC, topic_id=b"j" * 16), 0.0)
    assert [part.topic_id[:1] for part in session.partitions.values()] == [b"i", b"j"]
    sessions.go_on(request(session.session_id, 2, forgotten=(0,), topic=NO_TOPIC, topic_id=b"i" * 16), 0.0)
    assert [part.topic_id[:1] for part in session.partitions.values()] == [b"j"]


def test_a_session_ends_with_its_last_partition(sessions: Sessions) -> None:
    session = sessions.begin(2)
    assert sessions.go_on(request(session.session_id, 1, forgotten=(0, 1)), 0.0) is None
    assert (len(sessions), sessions.partitions_count) == (0, 0)


def test_a_fetch_that_waits_is_refused_when_another_goes_on_with_its_session_or_ends_it(sessions: Sessions) -> None:
    session = sessions.begin()
    waiting = Waiting(session)
    sessions.go_on(request(session.session_id, 1), 0.0)
    assert waiting.refused == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    waiting = Waiting(session)
    sessions.end(session.session_id)
    assert waiting.refused == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]


class Waiting:
    def __init__(self, session: FetchSession) -> None:
        self.refused: list[ErrorCode] = []
        self._session = session
        session.pending = self

    def look(self) -> None: ...

    def answer(self) -> None: ...

    def refuse(self, code: ErrorCode) -> None:
        self._session.pending = None
        self.refused.append(code)


# --- room ------------------------------------------------------------------------------------------------------


def test_there_are_no_more_sessions_than_slots(sessions: Sessions) -> None:
    assert all(sessions.begin() for _ in range(SLOTS))
    assert sessions.begin(count=9) is None, "all others are young"
    assert Sessions(Random(1), TopicTraffic()).begin(slots=0) is None


def test_a_session_that_was_not_used_for_long_gives_way_to_any(sessions: Sessions) -> None:
    first, second, third = (sessions.begin(5, now) for now in (0.0, 0.0, 1.0))
    later = EVICTABLE_AFTER_S + 0.5
    sessions.go_on(request(first.session_id, 1), later)
    assert sessions.begin(1, later) is not None
    sessions.go_on(request(first.session_id, 2), later)
    sessions.go_on(request(third.session_id, 1), later)
    assert refusal(sessions, request(second.session_id, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_old_session_in_use_gives_way_to_a_larger_one_only(sessions: Sessions) -> None:
    old = [sessions.begin(count, 0.0) for count in (4, 2, 3)]
    now = EVICTABLE_AFTER_S + 1
    for session in old:
        sessions.go_on(request(session.session_id, 1), now)
    assert sessions.begin(2, now) is None
    assert sessions.begin(3, now) is not None
    assert refusal(sessions, request(old[1].session_id, 2)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == SLOTS


def test_all_sessions_together_hold_so_many_partitions_and_no_more(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    first = sessions.begin(6)
    assert sessions.begin(5) is None
    assert sessions.begin(4) is not None
    assert refusal(sessions, request(first.session_id, 1, 6)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions_count == 4, "the session that grew has ended"


def test_names_that_no_topic_has_are_not_kept(sessions: Sessions) -> None:
    assert sessions.create(reads(1, "n" * 250), by_ids=False, slots=SLOTS, now=0.0) is None
    session = sessions.create(reads(1, "n" * 249), by_ids=False, slots=SLOTS, now=0.0)
    assert session is not None
    grown = request(session.session_id, 1, 0, topic="n" * 250)
    assert refusal(sessions, grown) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions_count == 0


def test_one_session_grows_no_larger_than_a_request_may_be(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_NAMED", 3)
    session = sessions.begin(3)
    assert sessions.go_on(request(session.session_id, 1, 5, forgotten=(0,)), 0.0) is session
    assert refusal(sessions, request(session.session_id, 2, 6)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# --- news ------------------------------------------------------------------------------------------------------


def data(high_watermark: int = 5, **fields) -> FetchPartitionData:
    return FetchPartitionData(
        0, fields.pop("code", 0), high_watermark, log_start_offset=fields.pop("start", 1), **fields
    )


def test_what_was_told_is_no_news(sessions: Sessions) -> None:
    [partition] = sessions.begin().partitions.values()
    assert partition.is_news(data(), False), "nothing was told yet"
    partition.told(data())
    assert not partition.is_news(data(), False)
    assert partition.is_news(data(), True)
    for news in (
        data(6),
        data(start=2),
        data(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        data(diverging_epoch=EpochEndOffset(1, 1)),
        data(preferred_read_replica=2),
    ):
        assert partition.is_news(news, False)


def test_after_an_error_the_high_watermark_is_told_again(sessions: Sessions) -> None:
    [partition] = sessions.begin().partitions.values()
    partition.told(data())
    partition.told(data(code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert partition.is_news(data(), False)


def test_who_watches_is_due_with_the_next_change_and_watches_no_longer(sessions: Sessions) -> None:
    session = sessions.begin(2)
    first, second = session.partitions.values()
    session.due.clear()
    watches: dict = {}
    first.watch(watches)
    first.watch(watches)
    second.watch(watches)
    assert list(watches) == [first, second]
    waiting = Waiting(session)
    assert watches.popitem()[0].changed() is waiting
    assert list(session.due) == [second]
    sessions.end(session.session_id)
    assert watches == {}, "nothing is left of a session that ended"


def test_one_whose_records_were_sent_comes_last(sessions: Sessions) -> None:
    session = sessions.begin(3)
    session.sent(next(iter(session.due)))
    assert [partition.wanted.partition for partition in session.due] == [1, 2, 0]


# --- any order of requests -------------------------------------------------------------------------------------


class AnyRequests(RuleBasedStateMachine):
    """Against a model that says the same in dictionaries: id → [epoch, created, last used, partitions]."""

    sessions_made = Bundle("sessions_made")
    some = st.frozensets(st.integers(0, 5), max_size=4)

    def __init__(self) -> None:
        super().__init__()
        self.real = FetchSessions(Random(7), TopicTraffic())
        self.model: dict[int, list] = {}
        self.now = 0.0

    @rule(target=sessions_made, count=st.integers(1, 6))
    def full_fetch(self, count: int):
        made = self.real.create(reads(count), by_ids=False, slots=SLOTS, now=self.now)
        if len(self.model) >= SLOTS:
            unused_since = min(used for _, _, used, _ in self.model.values())
            aged = [each for each, (_, created, _, _) in self.model.items() if self.now - created > EVICTABLE_AFTER_S]
            smallest = min((len(self.model[each][3]) for each in aged), default=count)
            if self.now - unused_since > EVICTABLE_AFTER_S or smallest < count:
                assert made is not None
            else:
                assert made is None
                return multiple()
            [victim] = set(self.model) - {each for each in self.model if self.is_there(each)}
            if self.now - unused_since > EVICTABLE_AFTER_S:
                assert self.model[victim][2] == unused_since
            else:
                assert victim in aged and len(self.model[victim][3]) == smallest
            del self.model[victim]
        assert made is not None and made.session_id > 0 and made.session_id not in self.model
        self.model[made.session_id] = [1, self.now, self.now, set(range(count))]
        return made.session_id

    def is_there(self, session_id: int) -> bool:
        try:
            self.real.go_on(request(session_id, 0), self.now)
        except BrokerError as error:
            return error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        raise AssertionError("epoch 0 goes on with nothing")

    @rule(session_id=sessions_made, ahead=st.sampled_from([0, 0, 0, -1, 1]), named=some, forgotten=some)
    def incremental_fetch(self, session_id: int, ahead: int, named: frozenset[int], forgotten: frozenset[int]) -> None:
        known = self.model.get(session_id)
        epoch = known[0] + ahead if known else 1
        message = request(session_id, epoch, *sorted(named), forgotten=tuple(sorted(forgotten)))
        if known is None:
            assert refusal(self.real, message) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif ahead:
            assert refusal(self.real, message) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            known[3] = (known[3] | named) - forgotten
            known[0], known[2] = next_epoch(epoch), self.now
            session = self.real.go_on(message, self.now)
            if not known[3]:
                assert session is None
                del self.model[session_id]
            else:
                assert session is not None and set(indexes(session)) == known[3]
                assert {part.wanted.partition for part in session.due} <= known[3]
                assert {part.wanted.partition for part in session.due} >= named - forgotten

    @rule(session_id=consumes(sessions_made))
    def end(self, session_id: int) -> None:
        self.real.end(session_id)
        self.model.pop(session_id, None)

    @rule(seconds=st.sampled_from([1.0, EVICTABLE_AFTER_S / 2, EVICTABLE_AFTER_S + 1]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def nearly_the_last_epoch(self, data: st.DataObject) -> None:
        session_id = data.draw(st.sampled_from(sorted(self.model)))
        self.model[session_id][0] = self.real._sessions[session_id].epoch = LAST_EPOCH

    @invariant()
    def the_sums_are_right(self) -> None:
        assert len(self.real) == len(self.model) <= SLOTS
        assert self.real.partitions_count == sum(len(known[3]) for known in self.model.values())


test_any_requests = AnyRequests.TestCase


def settled(sessions: FetchSessions, traffic: TopicTraffic) -> dict[str, int]:
    """Topic → partitions read, "" for those of all topics that are not here."""
    for _ in sessions.settle():
        pass
    return {"": traffic.total("fetch_requests")} | {name: row.fetch_requests for name, row in traffic.rows.items()}


def test_each_incremental_fetch_counts_every_partition_that_the_session_has_then() -> None:
    traffic = TopicTraffic()
    traffic.enter("t")
    sessions = Sessions(Random(1), traffic)
    session = sessions.begin(3)
    assert session is not None
    assert settled(sessions, traffic) == {"": 0, "t": 0}, "the full fetch is counted by its answer"
    sessions.go_on(request(session.session_id, 1), 0.0)
    sessions.go_on(request(session.session_id, 2, 3), 0.0)  # one partition more
    assert traffic.rows["t"].fetch_requests == 3, "counted when the partitions change, not per fetch"
    assert settled(sessions, traffic) == {"": 7, "t": 7}
    sessions.go_on(request(session.session_id, 3, 0, topic="gone"), 0.0)
    sessions.go_on(request(session.session_id, 4, forgotten=(0, 1)), 0.0)
    sessions.end(session.session_id)
    assert settled(sessions, traffic) == {"": 7 + 5 + 3, "t": 7 + 4 + 2}


def test_partitions_named_by_an_id_count_for_their_topic_once_that_is_known() -> None:
    traffic = TopicTraffic()
    traffic.enter("t")
    sessions = Sessions(Random(1), traffic)
    session = sessions.begin(2, by_ids=True)
    assert session is not None
    for epoch in (1, 2):
        sessions.go_on(request(session.session_id, epoch, topic=NO_TOPIC), 0.0)
        for partition in session.partitions.values():
            session.name(partition, "t")
    assert settled(sessions, traffic) == {"": 4, "t": 2}
