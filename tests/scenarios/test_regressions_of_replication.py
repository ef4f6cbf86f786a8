"""Scripted regressions of replication, driven step by step: who leads, which fetch arrives when, what ZooKeeper says.

Fencing (KAFKA-6880), the start of an epoch (KAFKA-7128), the maximal ISR (KAFKA-12686), fetches of an older epoch
(KIP-320).
"""

from __future__ import annotations

import pytest
import trio

from strandline.protocol.errors import ErrorCode
from strandline.testkit.inspection import assert_same_below
from support.replicas import ScriptedReplicas

LAG_TIME_DEFAULT_S = 30.0


def fill(cluster: ScriptedReplicas, leader: str, count: int, prefix: str) -> None:
    """`count` batches of one record each, for acks=1."""
    for number in range(count):
        assert cluster.produce(leader, f"{prefix}-{number}".encode(), acks=1).error_code == 0


def assert_equal_below_high_watermarks(cluster: ScriptedReplicas) -> None:
    lowest = min(cluster.hw(name) for name in cluster.names)
    assert_same_below({cluster.id_of(name): cluster.log(name) for name in cluster.names}, lowest)


async def test_r4_who_fetches_with_an_older_epoch_is_fenced_and_then_truncates(autojump_clock) -> None:
    """B missed two elections: its log of 50 is a prefix in length of A's 60, but not in content."""
    cluster = await ScriptedReplicas.start("ABC")
    await cluster.lead("A", epoch=0)
    fill(cluster, "A", 40, "e0")
    cluster.catch_up("BC")
    fill(cluster, "A", 10, "e0-uncommitted")
    cluster.fetch("B")
    cluster.fetch("B")
    assert [(cluster.leo(name), cluster.hw(name)) for name in "ABC"] == [(50, 40), (50, 40), (40, 40)]
    # B's session is lost: nobody tells it anything, and it keeps fetching.
    await cluster.lead("C", epoch=1, isr="CA", tell="CA")
    cluster.fetch("A")
    assert cluster.leo("A") == 40, "A truncates to where C leads from"
    fill(cluster, "C", 20, "e1")
    cluster.catch_up("A")
    assert (cluster.leo("A"), cluster.hw("C")) == (60, 60)
    await cluster.lead("A", epoch=2, isr="CA", tell="CA")
    question = cluster.ask("B")
    wanted = question.request.topics[0].partitions[0]
    assert (wanted.fetch_offset, wanted.current_leader_epoch) == (50, 0)
    answer = cluster.answer("A", question)
    assert answer.partition.error_code == ErrorCode.FENCED_LEADER_EPOCH and not answer.records
    cluster.take(question, answer)
    assert cluster.leo("B") == 50
    # B learns of the present.
    await cluster.lead("A", epoch=2, isr="CA", tell="B")
    cluster.fetch("B")
    assert cluster.leo("B") == 40
    cluster.catch_up("BC")
    assert cluster.values("B") == cluster.values("A") == cluster.values("C")
    assert (cluster.leo("B"), cluster.hw("B")) == (60, 60)


async def test_r5_an_outsider_joins_only_from_the_start_of_the_epoch_on(autojump_clock) -> None:
    """A fresh leader does not know yet what was committed: its own high watermark is no proof for an outsider."""
    cluster = await ScriptedReplicas.start("ABC", min_insync_replicas="1")
    await cluster.lead("A", epoch=0, isr="AB")
    fill(cluster, "A", 5, "known")
    cluster.fetch("B")
    cluster.fetch("B")
    cluster.fetch("C")  # from 0: it is not caught up, and has 5 afterwards
    assert (cluster.leo("C"), cluster.hw("B")) == (5, 5)
    acks = [cluster.produce("A", f"acked-{number}".encode()) for number in range(5)]
    cluster.fetch("B")
    cluster.answer("A", cluster.ask("B"))  # B has them all, and the answer that tells B so is lost
    assert {ack.error_code for ack in acks} == {0}
    await cluster.lead("B", epoch=1, isr="AB")
    stale, start = cluster.hw("B"), cluster.leo("B")
    assert (stale, cluster.leo("C"), start) == (5, 5, 10), "the schedule needs HW ≤ LEO of C < start of the epoch"
    question = cluster.ask("C")
    answer = cluster.answer("B", question)
    assert cluster.proposal("B") is None, "C lacks what may be committed"
    assert cluster.hw("B") == stale
    cluster.take(question, answer)
    assert cluster.leo("C") == start
    cluster.fetch("C")
    proposal = cluster.proposal("B")
    assert proposal is not None and set(proposal.added) == {cluster.id_of("C")}
    cluster.accept("B")
    assert cluster.isr("B") == "ABC"
    cluster.catch_up("AC")
    assert_equal_below_high_watermarks(cluster)


async def test_r6_the_high_watermark_waits_for_who_is_about_to_join(autojump_clock) -> None:
    """C was caught up at 0 and is proposed; ZooKeeper is slow. The controller may elect C from the moment of the write,
    so nothing may be committed without it, however long the answer takes."""
    cluster = await ScriptedReplicas.start("ABC", replica_lag_time_max_ms="10000")
    await cluster.lead("A", epoch=0, isr="AB")
    cluster.fetch("C")
    assert cluster.proposal("A") is not None
    acks = [cluster.produce("A", f"record-{number}".encode()) for number in range(10)]
    for _ in range(5):
        await trio.sleep(10)
        cluster.fetch("B")
        cluster.check_isrs("A")
    assert cluster.leo("B") == 10
    assert cluster.hw("A") == 0
    assert not [ack for ack in acks if ack.error_code == 0], "acknowledged what C lacks"
    # The write had been applied: the controller elects C, and A hears of its proposal no more.
    acked = [value for value, ack in zip(cluster.values("A"), acks, strict=True) if ack.error_code == 0]
    await cluster.lead("C", epoch=1)
    cluster.catch_up("AB")
    assert all(value in cluster.values("C") for value in acked)
    assert cluster.values("A") == cluster.values("B") == cluster.values("C") == []
    assert {ack.error_code for ack in acks} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    late = cluster.produce("C", b"after")
    cluster.catch_up("AB")
    assert late.error_code == 0
    assert_equal_below_high_watermarks(cluster)


async def test_r6_the_same_proposal_once_answered_lets_all_three_commit(autojump_clock) -> None:
    cluster = await ScriptedReplicas.start("ABC")
    await cluster.lead("A", epoch=0, isr="AB")
    cluster.fetch("C")
    ack = cluster.produce("A", b"record")
    cluster.fetch("B")
    cluster.fetch("B")
    cluster.accept("A")
    assert (ack.error_code, cluster.hw("A")) == (None, 0)
    cluster.catch_up("BC")
    assert (ack.error_code, cluster.hw("A"), cluster.isr("A")) == (0, 1, "ABC")


async def test_r6_an_outsider_that_fell_behind_before_it_was_proposed_holds_nobody_up(autojump_clock) -> None:
    cluster = await ScriptedReplicas.start("ABC", replica_lag_time_max_ms="10000")
    await cluster.lead("A", epoch=0, isr="AB")
    ack = cluster.produce("A", b"record")
    cluster.fetch("B")
    cluster.fetch("B")
    assert ack.error_code == 0
    assert cluster.proposal("A") is None


@pytest.mark.parametrize("in_sync", ["A", "AC"])
async def test_below_the_minimum_a_follower_joins_only_with_what_all_in_sync_have(in_sync, autojump_clock) -> None:
    """The high watermark stands still at 3: it is no proof of anything."""
    cluster = await ScriptedReplicas.start("ABC", min_insync_replicas="3")
    await cluster.lead("A", epoch=0)
    fill(cluster, "A", 3, "known")
    cluster.catch_up("BC")
    await trio.sleep(LAG_TIME_DEFAULT_S + 1)
    fill(cluster, "A", 1, "unseen")
    cluster.catch_up(in_sync.replace("A", ""))
    cluster.check_isrs("A")
    cluster.accept("A")
    assert cluster.isr("A") == in_sync
    fill(cluster, "A", 30, "below-the-minimum")
    cluster.catch_up(in_sync.replace("A", ""))
    question = cluster.ask("B")
    answer = cluster.answer("A", question)
    assert (cluster.leo("B"), cluster.hw("A")) == (3, 3)
    assert cluster.proposal("A") is None, "B lacks what would be committed if the minimum were smaller"
    cluster.take(question, answer)
    cluster.fetch("B")
    assert cluster.proposal("A") is not None
    cluster.accept("A")
    await cluster.lead("B", epoch=1)
    cluster.catch_up("AC")
    assert all(len(cluster.values(name)) == 34 for name in "ABC")


async def test_r22_a_fetch_of_an_older_epoch_moves_nothing(autojump_clock) -> None:
    """Three fast elections: A, C, A again. B's fetch from A's first time arrives in its second, when B has other
    records at those offsets: taken as proof, it would commit what B lacks."""
    cluster = await ScriptedReplicas.start("ABC", min_insync_replicas="1")
    await cluster.lead("A", epoch=0)
    fill(cluster, "A", 5, "common")
    cluster.catch_up("BC")
    await cluster.lead("A", epoch=1)
    fill(cluster, "A", 5, "first")
    cluster.fetch("B")
    late = cluster.ask("B")  # from 10, of epoch 1; it stays on its way
    assert late.request.topics[0].partitions[0].fetch_offset == 10
    await cluster.lead("C", epoch=2)
    cluster.fetch("B")
    assert cluster.leo("B") == 5, "B follows C"
    await cluster.lead("A", epoch=3, isr="AB")  # A was not told to truncate: it never fetched from C
    assert cluster.leo("A") == 10
    high_watermark = cluster.hw("A")
    answer = cluster.answer("A", late)
    assert answer.partition.error_code == ErrorCode.FENCED_LEADER_EPOCH and not answer.records
    assert cluster.hw("A") == high_watermark == 5
    progress = cluster.partition("A").leadership.followers[cluster.id_of("B")]
    assert progress.log_end_offset == -1, "the old fetch is no progress"
    cluster.take(late, answer)
    assert cluster.leo("B") == 5
    cluster.catch_up("B")
    assert cluster.hw("A") == 10
    assert cluster.values("B") == cluster.values("A")
    cluster.catch_up("C")
    assert_equal_below_high_watermarks(cluster)


async def test_r22_an_answer_to_an_older_epoch_is_not_appended(autojump_clock) -> None:
    cluster = await ScriptedReplicas.start("ABC")
    await cluster.lead("A", epoch=0)
    fill(cluster, "A", 3, "of A")
    question = cluster.ask("B")
    answer = cluster.answer("A", question)
    assert answer.records
    await cluster.lead("C", epoch=1, isr="BC")
    cluster.take(question, answer)  # it arrives after B was told to follow C
    assert cluster.leo("B") == 0
    fill(cluster, "C", 1, "of C")
    cluster.catch_up("AB")
    assert cluster.values("A") == cluster.values("B") == cluster.values("C") == [b"of C-0"]


async def test_r22_an_answer_of_the_same_leader_in_an_older_epoch_is_not_appended(autojump_clock) -> None:
    """A wrote, lost its office and what it wrote, and leads again: its answer from before is still on its way."""
    cluster = await ScriptedReplicas.start("ABC")
    await cluster.lead("A", epoch=0)
    fill(cluster, "A", 3, "before")
    question = cluster.ask("B")
    answer = cluster.answer("A", question)
    await cluster.lead("C", epoch=1, isr="AC", tell="AC")
    cluster.fetch("A")
    assert cluster.leo("A") == 0
    await cluster.lead("A", epoch=2, isr="AC")
    cluster.take(question, answer)
    assert cluster.leo("B") == 0
    fill(cluster, "A", 1, "after")
    cluster.catch_up("BC")
    assert cluster.values("A") == cluster.values("B") == cluster.values("C") == [b"after-0"]


async def test_a_fetch_that_is_answered_with_a_divergence_is_no_proof_of_anything(autojump_clock) -> None:
    """B has as many records as the leader, but others: if its offset counted, the leader would commit without it."""
    cluster = await ScriptedReplicas.start("AB")
    await cluster.lead("A", epoch=0)
    fill(cluster, "A", 5, "common")
    cluster.catch_up("B")
    await cluster.lead("B", epoch=1)
    fill(cluster, "B", 5, "of B")
    await cluster.lead("A", epoch=2)
    acks = [cluster.produce("A", f"of A-{number}".encode()) for number in range(5)]
    answer = cluster.answer("A", cluster.ask("B"))
    assert answer.partition.diverging_epoch is not None
    assert (cluster.leo("A"), cluster.leo("B"), cluster.hw("A")) == (10, 10, 5)
    assert {ack.error_code for ack in acks} == {None}
    cluster.catch_up("B")
    assert {ack.error_code for ack in acks} == {0}
    assert cluster.values("A") == cluster.values("B")
