"""The purgatory: each operation ends exactly once, by its condition, whatever wakes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.handlers.produce import UNDECIDED, ProduceOperation
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.replication.purgatory import ABANDONED_AFTER_S, OffsetWaiters, Waiter
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import PartitionProduceResponse
from support.replica_site import T0, T1, Hand, in_hand, produce_hand


def operation(hand: Hand, partitions: int = 1, deadline: float = 100.0) -> ProduceOperation:
    return ProduceOperation(in_hand(hand), deadline, True, partitions, [UNDECIDED] * partitions, TopicTraffic())


def parked(waiters: OffsetWaiters, required_offset: int, deadline: float = 100.0) -> Hand:
    hand = produce_hand((T0, b""))
    waiters.park(Waiter(required_offset, operation(hand, deadline=deadline), 0, 0, required_offset - 1), Deadlines())
    return hand


def codes(hands: list[Hand]) -> list[int | None]:
    return [hand.outcomes[0].error_code if hand.is_answered else None for hand in hands]


def test_an_operation_is_answered_when_its_last_partition_is_decided_in_the_order_of_the_request() -> None:
    hand = produce_hand((T0, b""), (T1, b""))
    one = operation(hand, 2)
    one.complete(1, PartitionProduceResponse(1, 0, 7))
    assert not hand.is_answered
    one.complete(0, PartitionProduceResponse(0, ErrorCode.MESSAGE_TOO_LARGE))
    assert [(o.index, o.error_code, o.base_offset) for o in hand.outcomes] == [(0, 10, -1), (1, 0, 7)]


def test_an_outcome_is_decided_once() -> None:
    one = operation(produce_hand((T0, b""), (T1, b"")), 2)
    one.complete(0, PartitionProduceResponse(0, 0))
    with pytest.raises(AssertionError, match="decided once"):
        one.complete(0, PartitionProduceResponse(0, 0))


def test_the_high_watermark_answers_those_whose_last_record_is_below_it() -> None:
    waiters = OffsetWaiters()
    hands = [parked(waiters, offset) for offset in (3, 5, 8)]
    waiters.complete_up_to(2, 0)
    assert codes(hands) == [None, None, None]
    waiters.complete_up_to(5, 1)
    assert codes(hands) == [0, 0, None]
    assert (hands[1].outcomes[0].base_offset, hands[1].outcomes[0].log_start_offset) == (4, 1)
    assert len(waiters.waiting) == 1


def test_all_who_wait_learn_of_the_new_leader() -> None:
    waiters = OffsetWaiters()
    hands = [parked(waiters, offset) for offset in (3, 5)]
    waiters.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 9)
    for hand in hands:
        (outcome,) = hand.outcomes
        assert (outcome.error_code, outcome.current_leader_id, outcome.current_leader_epoch) == (6, 2, 9)
    assert len(waiters.waiting) == 0


def test_only_what_is_overdue_expires_wherever_it_stands() -> None:
    waiters = OffsetWaiters()
    hands = [parked(waiters, 3, deadline=50.0), parked(waiters, 5, deadline=10.0), parked(waiters, 8, deadline=50.0)]
    waiters.expire(10.0)
    assert codes(hands) == [None, ErrorCode.REQUEST_TIMED_OUT, None]
    waiters.complete_up_to(8, 0)
    assert codes(hands) == [0, ErrorCode.REQUEST_TIMED_OUT, 0]


def test_who_has_hung_up_is_forgotten() -> None:
    waiters = OffsetWaiters()
    hand = parked(waiters, 3)
    hand.connection.close("gone")
    waiters.expire(0.0)
    assert len(waiters.waiting) == 0


def test_who_has_hung_up_is_forgotten_soon_however_long_it_wanted_to_wait() -> None:
    deadlines, waiters = Deadlines(), OffsetWaiters()
    deadlines.expire(5.0)
    hands = [produce_hand((T0, b"")) for _ in range(2)]
    for hand in hands:
        waiters.park(Waiter(3, operation(hand, deadline=1e6), 0, 0), deadlines)
    deadlines.expire(5.0 + ABANDONED_AFTER_S)
    assert len(waiters.waiting) == 2
    hands[0].connection.close("gone")
    deadlines.expire(5.0 + 2 * ABANDONED_AFTER_S)
    assert len(waiters.waiting) == 1
    hands[1].connection.close("gone")
    deadlines.expire(5.0 + 3 * ABANDONED_AFTER_S)
    assert not waiters.waiting and len(deadlines) == 0


def test_a_failure_with_acks_0_closes_and_is_not_answered() -> None:
    hand = produce_hand((T0, b""), acks=0)
    operation(hand).complete(0, PartitionProduceResponse(0, ErrorCode.CORRUPT_MESSAGE))
    assert hand.connection.closed and "CORRUPT_MESSAGE" in hand.connection.why_closed
    assert not hand.answers


steps = st.lists(
    st.one_of(
        st.tuples(st.just("park"), st.integers(1, 5)),
        st.tuples(st.just("hw"), st.integers(0, 60)),
        st.tuples(st.just("expire"), st.integers(0, 40)),
        st.tuples(st.just("fail"), st.just(0)),
    ),
    max_size=40,
)


@given(steps=steps)
def test_everybody_is_answered_exactly_once_and_with_success_only_below_the_high_watermark(
    steps: list[tuple[str, int]],
) -> None:
    waiters = OffsetWaiters()
    hands: list[tuple[Hand, int]] = []
    end = high_watermark = 0
    for number, (what, value) in enumerate(steps):
        if what == "park":
            end += value
            hands.append((parked(waiters, end, deadline=float(number + 10)), end))
            waiters.complete_up_to(high_watermark, 0)
        elif what == "hw":
            high_watermark = max(high_watermark, min(value, end))
            waiters.complete_up_to(high_watermark, 0)
        elif what == "expire":
            waiters.expire(float(value))
        else:
            waiters.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 1)
        for hand, required in hands:
            assert len(hand.answers) <= 1
            if hand.is_answered and hand.outcomes[0].error_code == 0:
                assert required <= high_watermark
    waiters.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 1)
    assert all(len(hand.answers) == 1 for hand, _ in hands)
