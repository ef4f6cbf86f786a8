"""A leader that starts again on a compacted log knows where its epochs began: no follower is cut for nothing."""

from __future__ import annotations

from support.cleaning import batches, clean
from support.replicas import ScriptedReplicas


async def leader_with_gaps(first_leader: str) -> ScriptedReplicas:
    """A leads with B in sync, C is away, and compaction left no batch of A's log around where epochs 1 and 2 begin, at
    20 and 24; then A was killed and leads again. Where A led from the start, C has all records up to 12 and knows them
    to be committed. Where C led epoch 0, it has seven more than anybody, which never were."""
    cluster = await ScriptedReplicas.start("ABC", log_segment_bytes="5000")
    await cluster.lead(first_leader, epoch=0)
    for number in range(12 if first_leader == "A" else 20):
        cluster.produce(first_leader, b"0-%d" % number)
    cluster.catch_up("ABC".replace(first_leader, ""))
    for number in range(7 if first_leader == "C" else 0):
        cluster.produce("C", b"lost-%d" % number, acks=1)
    for epoch, count in ((0, 20 - cluster.leo("A")), (1, 4), (2, 60)):
        if epoch:
            await cluster.lead("A", epoch=epoch, isr="AB", tell="AB")
        for number in range(count):
            cluster.produce("A", b"%d-%d" % (epoch, number))
        if count:
            cluster.catch_up("B")
    log = cluster.log("A")
    log.roll()
    cluster.produce("A", b"last")
    cluster.catch_up("B")
    log.flush_plan()()
    clean(log, cluster.disk("A"), end_offset=cluster.hw("A"), segment_bytes=5000)
    assert not any(5 < seen.header.base_offset < 30 for seen in batches(log))
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(0, 0), (1, 20), (2, 24)]
    cluster.restart("A")
    await cluster.lead("A", epoch=3, isr="AB")
    return cluster


async def test_a_follower_behind_a_compaction_is_not_cut_by_a_leader_that_was_killed() -> None:
    cluster = await leader_with_gaps("A")
    ends = [cluster.leo("C")]
    while ends[-1] < cluster.leo("A"):
        cluster.fetch("C")
        ends.append(cluster.leo("C"))
    assert ends[0] == 12 and ends == sorted(ends), "what C had was committed"
    cluster.catch_up("BC")
    assert cluster.hw("C") == cluster.leo("A") == cluster.leo("C")


async def test_what_a_follower_has_beyond_the_end_of_its_epoch_is_cut_there() -> None:
    cluster = await leader_with_gaps("C")
    assert cluster.leo("C") == 27
    cluster.fetch("C")
    assert cluster.leo("C") == 20
    cluster.catch_up("BC")
    assert cluster.hw("C") == cluster.leo("A") == cluster.leo("C")
