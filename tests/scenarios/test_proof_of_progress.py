"""What a fetch proves of its sender, step by step: of who joins below the minimum, and of who has diverged."""

from __future__ import annotations

import pytest
import trio

from support.replicas import ScriptedReplicas

LAG_TIME_DEFAULT_S = 30.0


def fill(cluster: ScriptedReplicas, leader: str, count: int, prefix: str) -> None:
    """`count` batches of one record each, for acks=1."""
    for number in range(count):
        assert cluster.produce(leader, f"{prefix}-{number}".encode(), acks=1).error_code == 0


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
