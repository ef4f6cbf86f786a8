"""Produce: who is answered when, with what, and what never reaches a log."""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import UpdateMetadataPartitionState
from support.replica_site import T0, T1, ReplicaSite, batch, produce_hand

OTHER_ID = b"\x07" * 16


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def codes(hand) -> list[int]:
    return [outcome.error_code for outcome in hand.outcomes]


# --- acks ------------------------------------------------------------------------------------------------------


async def test_acks_1_is_answered_once_the_leaders_log_has_the_batch(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    assert site.produce((T0, batch(3)), acks=1).outcomes[0].base_offset == 0
    assert site.produce((T0, batch(2)), acks=1).outcomes[0].base_offset == 3
    assert site.partition().log.log_end_offset == 5
    assert site.partition().high_watermark == 0


async def test_acks_all_waits_until_every_in_sync_replica_has_it(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    hand = site.produce((T0, batch(3)))
    site.follow(2, 3)
    assert not hand.is_answered
    site.follow(3, 2)
    assert not hand.is_answered
    site.follow(3, 3)
    outcome = hand.outcomes[0]
    assert (outcome.error_code, outcome.base_offset, outcome.log_start_offset) == (0, 0, 0)


async def test_acks_all_is_answered_at_once_where_the_leader_is_the_only_replica(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    assert codes(site.produce((T0, batch()))) == [0]


async def test_acks_0_takes_no_answer(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    hand = site.produce((T0, batch(2)), acks=0)
    assert (hand.answers, hand.silent) == ([], 1)
    assert not hand.connection.closed
    assert site.partition().log.log_end_offset == 2


async def test_acks_0_that_fails_closes_the_connection(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    hand = site.produce((T0, batch()), (T1, batch()), acks=0)
    assert hand.connection.closed
    assert "UNKNOWN_TOPIC_OR_PARTITION" in hand.connection.why_closed
    assert not hand.answers
    assert site.partition().log.log_end_offset == 1, "the good partition is written all the same"


@pytest.mark.parametrize("acks", [-2, 2, 3, 32767])
async def test_other_acks_are_refused(acks: int, site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    assert codes(site.produce((T0, batch()), acks=acks)) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert site.partition().log.log_end_offset == 0


# --- the minimum of in-sync replicas ---------------------------------------------------------------------------


async def test_acks_all_is_refused_before_the_append_while_the_isr_is_too_small(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(isr=(1,))
    assert codes(site.produce((T0, batch()))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert site.partition().log.log_end_offset == 0


async def test_acks_1_is_taken_while_the_isr_is_too_small(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(isr=(1,))
    assert codes(site.produce((T0, batch()), acks=1)) == [0]
    assert site.partition().high_watermark == 0, "but it does not commit"


async def test_a_proposed_member_does_not_make_the_isr_large_enough(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(isr=(1,))
    site.follow(2, 0)
    assert site.partition().leadership.proposal is not None
    assert codes(site.produce((T0, batch()))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    site.end_proposal((1, 2))
    assert not site.produce((T0, batch())).is_answered, "now it waits for the new member"


async def test_requests_that_wait_while_the_isr_shrank_below_the_minimum_time_out(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    hand = site.produce((T0, batch()), timeout_ms=500)
    partition = site.partition()
    await trio.sleep(0.3)
    partition.check_in_sync(trio.current_time() + 1000)
    site.end_proposal((1,))
    assert not hand.is_answered, "all of the ISR has it, yet the ISR is too small"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        await trio.sleep(0.1)
        assert not hand.is_answered
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    assert codes(hand) == [ErrorCode.REQUEST_TIMED_OUT]
    assert partition.log.log_end_offset == 1, "the record stays and may still be committed"


async def test_a_request_that_timed_out_is_not_answered_again_when_its_record_commits(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    early, late = site.produce((T0, batch()), timeout_ms=100), site.produce((T0, batch()), timeout_ms=10_000)
    site.partition().waiters.expire(trio.current_time() + 1)
    assert codes(early) == [ErrorCode.REQUEST_TIMED_OUT]
    site.follow(2, 2)
    site.follow(3, 2)
    assert codes(early) == [ErrorCode.REQUEST_TIMED_OUT]
    assert codes(late) == [0]


# --- what is refused -------------------------------------------------------------------------------------------


async def test_an_invalid_batch_refuses_only_its_own_partition(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.order(site.state(T0), site.state(T1))
    hand = site.produce((T0, damaged(batch())), (T1, batch(2)), acks=1)
    assert codes(hand) == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert hand.outcomes[0].error_message
    assert (site.partition(T0).log.log_end_offset, site.partition(T1).log.log_end_offset) == (0, 2)


async def test_a_batch_behind_a_bad_one_in_the_same_partition_is_not_written_either(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    assert codes(site.produce((T0, batch() + damaged(batch())), acks=1)) == [ErrorCode.CORRUPT_MESSAGE]
    assert site.partition().log.log_end_offset == 0


async def test_a_batch_above_max_message_bytes_is_refused(autojump_clock) -> None:
    site = ReplicaSite(topic={"max.message.bytes": "200"})
    await site.lead()
    assert codes(site.produce((T0, batch(size_bytes=300)), acks=1)) == [ErrorCode.MESSAGE_TOO_LARGE]


async def test_an_unknown_partition_is_told_from_one_that_is_led_elsewhere(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    site.update_metadata(UpdateMetadataPartitionState(0, 1, 2, 7, [2, 3], 4, [2, 3]))
    elsewhere, unknown = site.produce((T0, batch()), (T1, batch())).outcomes
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (elsewhere.current_leader_id, elsewhere.current_leader_epoch) == (2, 7)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_follower_names_the_leader_that_it_follows(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.follow_leader(leader=3, epoch=4)
    outcome = site.produce((T0, batch())).outcomes[0]
    assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (outcome.current_leader_id, outcome.current_leader_epoch) == (3, 4)


async def test_another_topic_of_the_same_name_is_refused(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    assert codes(site.produce((T0, batch()), topic_id=OTHER_ID)) == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_an_empty_request_and_an_empty_partition_are_answered_at_once(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    assert site.produce().answer.responses == []
    assert codes(site.produce((T0, b""))) == [0]


# --- several partitions, several requests ----------------------------------------------------------------------


async def test_several_partitions_are_answered_together_once_and_in_the_order_of_the_request(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.order(site.state(T0), site.state(T1, replicas=(1,), isr=(1,)))
    hand = site.produce((T1, batch(2)), (T0, batch(1)), (T1, damaged(batch())))
    assert not hand.is_answered, "one partition of three still waits"
    site.follow(2, 1)
    site.follow(3, 1)
    assert [(o.index, o.error_code) for o in hand.outcomes] == [(1, 0), (0, 0), (1, ErrorCode.CORRUPT_MESSAGE)]


async def test_several_topics_keep_their_places_in_the_answer(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    other = T0._replace(topic="other")
    await site.order(site.state(other), topic="other")
    answer = site.produce((other, batch()), (T0, batch()), acks=1).answer
    assert [topic.name for topic in answer.responses] == ["other", "t"]
    assert [len(topic.partition_responses) for topic in answer.responses] == [1, 1]


async def test_all_batches_of_a_burst_for_one_partition_are_one_write(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.order(site.state(T0), site.state(T1))
    writes: list[str] = []
    site.disk.on_operation = lambda operation, path: writes.append(path) if operation == "pwritev" else None
    hands = [produce_hand((T0, batch(place + 1)), (T1, batch()), acks=1) for place in range(4)]
    site.burst(*hands)
    assert sorted(writes) == ["/logs/t-0/00000000000000000000.log", "/logs/t-1/00000000000000000000.log"]
    assert [hand.outcomes[0].base_offset for hand in hands] == [0, 1, 3, 6]
    assert [hand.outcomes[1].base_offset for hand in hands] == [0, 1, 2, 3]


async def test_each_request_of_a_wave_waits_for_its_own_last_record(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    first, second = produce_hand((T0, batch(2))), produce_hand((T0, batch(3)))
    site.burst(first, second)
    site.follow(2, 5)
    site.follow(3, 2)
    assert (first.is_answered, second.is_answered) == (True, False)
    site.follow(3, 5)
    assert second.outcomes[0].base_offset == 2


async def test_a_failing_disk_fails_the_whole_wave_of_that_partition_and_none_of_another_directory(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1))
    site.disk.fail("pwritev", "/logs/t-0/*.log", errno.EIO)
    hands = [produce_hand((T0, batch()), (T1, batch()), acks=1) for _ in range(2)]
    site.burst(*hands)
    assert [codes(hand) for hand in hands] == [[ErrorCode.KAFKA_STORAGE_ERROR, 0]] * 2
    assert site.partition(T0).failed and site.partition(T0).leadership is None
    assert codes(site.produce((T0, batch()))) == [ErrorCode.KAFKA_STORAGE_ERROR]


# --- leadership comes and goes ---------------------------------------------------------------------------------


async def test_the_loss_of_leadership_fails_who_waits_and_names_the_new_leader(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    hand = site.produce((T0, batch()))
    await site.follow_leader(leader=2, epoch=1)
    outcome = hand.outcomes[0]
    assert outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (outcome.current_leader_id, outcome.current_leader_epoch) == (2, 1)


async def test_a_new_epoch_of_the_same_leader_keeps_who_waits(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    hand = site.produce((T0, batch()))
    site.follow(2, 1)
    await site.lead(epoch=1, isr=(1, 2))
    assert not hand.is_answered
    assert site.partition().high_watermark == 0, "nobody has fetched in the new epoch yet"
    site.follow(2, 1)
    assert codes(hand) == [0]


async def test_a_stopped_replica_fails_who_waits(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    hand = site.produce((T0, batch()))
    site.stop()
    assert codes(hand) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
