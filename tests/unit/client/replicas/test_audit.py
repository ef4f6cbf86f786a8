"""An audit over a cluster in memory: which replicas are compared, what is looked at again, what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.errors import CannotReachBroker, UnknownTopic
from strandline.client.replicas import looking
from strandline.client.replicas.audit import MAX_LOOKS, AuditOptions, AuditSummary, audited, why
from strandline.client.replicas.comparison import Finding
from strandline.client.replicas.reading import Replica
from strandline.protocol.types import TopicPartition
from support.audited_cluster import DAMAGED_AT, END, SIZES, T0, MemoryAdmin, audited_cluster, damage
from support.damaged_replicas import MemoryReplica, batch_at, plain_batches

T1 = TopicPartition("t", 1)


def cluster(*partitions: TopicPartition, **fields: Any) -> MemoryAdmin:
    return audited_cluster(*partitions or (T0,), **fields)


def run(admin: MemoryAdmin, **options: Any) -> AuditSummary:
    return audited(admin, AuditOptions("there:1", **options), admin.run)


def found(summary: AuditSummary) -> list[tuple[str, int, str, int]]:
    return [
        (f"{partition.topic}-{partition.partition}", replica.broker_id, each.kind, each.start)
        for partition in summary.partitions
        for replica in partition.replicas
        for each in replica.findings
    ]


def test_equal_replicas_take_one_look() -> None:
    summary = run(cluster(T0, T1))
    assert (summary.is_equal, summary.looks, summary.replicas, found(summary)) == (True, 1, 6, [])
    assert summary.replicas_by_state == {"equal": 6, "behind": 0, "offline": 0, "unread": 0, "different": 0}
    assert (summary.batches, summary.records) == (6 * len(SIZES), 6 * END)
    replica = summary.partitions[0].replicas[1]
    assert (replica.is_leader, replica.in_sync, replica.start, replica.end, replica.lag) == (False, True, 0, END, 0)


@pytest.mark.parametrize("offsets_per_work", [1, 4, 1000])
def test_damage_is_looked_at_twice_and_told_once_however_partitions_are_cut(
    offsets_per_work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "OFFSETS_PER_WORK", offsets_per_work)
    admin = cluster(T0, T1)
    damage(admin, 3, T1)
    del admin.replicas[Replica(T0, 2)].stored[10]
    summary = run(admin)
    assert (summary.is_equal, summary.looks) == (False, 2)
    assert found(summary) == [("t-0", 2, "missing", 10), ("t-1", 3, "damaged", DAMAGED_AT)]
    [missing] = summary.partitions[0].replicas[1].findings
    assert (missing.start, missing.end) == (10, 15)
    assert (summary.records, summary.replicas_by_state["different"]) == (6 * END - 5, 2)


def test_only_pieces_in_which_something_was_found_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "OFFSETS_PER_WORK", 4)
    admin = cluster(T0, T1)
    damage(admin, 3, T1)
    seen: list[list[tuple[TopicPartition, int]]] = []

    def noted(works: list[looking.Work]) -> Any:
        seen.append([work.piece for work in works])
        return admin.run(works)

    audited(admin, AuditOptions("there:1"), noted)
    assert len(seen[0]) == 2 * 4 and seen[1:] == [[(T1, 1)]]


def test_what_a_second_look_does_not_find_was_no_difference() -> None:
    admin = cluster()
    del admin.replicas[Replica(T0, 2)].stored[10]
    whole = dict(zip([0, 3, 4, 8, 10], plain_batches(SIZES), strict=True))

    def mend(time: int) -> None:
        if time == 2:
            admin.replicas[Replica(T0, 2)].stored = whole

    admin.before_plan = mend
    summary = run(admin)
    assert (summary.is_equal, summary.looks, found(summary)) == (True, 2, [])


def test_a_leader_that_moves_while_it_is_read_is_planned_anew_and_no_difference() -> None:
    admin = cluster()
    first = admin.run

    def moves(works: list[looking.Work]) -> Any:
        if admin.epoch == 0:
            admin.epoch, admin.leaders = 1, {T0: 2}
        return first(works)

    summary = audited(admin, AuditOptions("there:1"), moves)
    assert (summary.is_equal, summary.looks, summary.partitions[0].leader) == (True, 2, 2)


def test_what_changes_with_every_look_is_told_after_the_last() -> None:
    admin = cluster()

    def moves(works: list[looking.Work]) -> Any:
        admin.epoch += 1
        return admin.run(works)

    summary = audited(admin, AuditOptions("there:1"), moves)
    assert summary.looks == 2, "that it cannot be read was found twice"
    assert summary.replicas_by_state["unread"] == 3
    number = iter(range(100))

    def differs(works: list[looking.Work]) -> Any:
        offset = (0, 3, 4, 8, 10)[next(number) % 5]
        admin.replicas[Replica(T0, 2)] = MemoryReplica(plain_batches(SIZES))
        admin.replicas[Replica(T0, 2)].stored[offset] = batch_at(offset, [(None, b"other")])
        return admin.run(works)

    summary = audited(admin, AuditOptions("there:1"), differs)
    assert (summary.looks, summary.is_equal) == (MAX_LOOKS, False)
    findings = summary.partitions[0].replicas[1].findings
    assert findings and all(not each.is_confirmed and "not confirmed" in why(each) for each in findings)


def test_what_was_found_twice_is_confirmed_beside_what_was_not() -> None:
    admin = cluster()
    damage(admin, 2)

    number = iter(range(100))

    def moves(works: list[looking.Work]) -> Any:
        offset = (8, 10)[next(number) % 2]
        admin.replicas[Replica(T0, 2)] = MemoryReplica(plain_batches(SIZES))
        damage(admin, 2)
        admin.replicas[Replica(T0, 2)].stored[offset] = batch_at(offset, [(None, b"other")])
        return admin.run(works)

    summary = audited(admin, AuditOptions("there:1"), moves)
    kinds = [(each.kind, each.is_confirmed) for each in summary.partitions[0].replicas[1].findings]
    assert kinds == [("damaged", True), ("different", False)] and summary.looks == MAX_LOOKS
    assert "not confirmed" not in why(summary.partitions[0].replicas[1].findings[0])


def test_replicas_that_cannot_be_asked_are_told_and_the_others_compared() -> None:
    admin = cluster(T0, T1, offline={3}, refused={Replica(T1, 2): "its folder is a link; remove it"})
    damage(admin, 2)
    summary = run(admin)
    assert found(summary) == [
        ("t-0", 2, "damaged", DAMAGED_AT),
        ("t-0", 3, "offline", 0),
        ("t-1", 2, "unread", 0),
        ("t-1", 3, "offline", 0),
    ]
    assert [each.state for each in summary.partitions[1].replicas] == ["equal", "unread", "offline"]
    assert "its folder is a link" in summary.partitions[1].replicas[1].findings[0].text


def test_offline_brokers_may_be_allowed() -> None:
    assert not run(cluster(offline={3})).is_equal
    assert run(cluster(offline={3}), allow_offline=True).is_equal
    assert not run(cluster(unreachable={3}), allow_offline=True).is_equal


@pytest.mark.parametrize("change", [{"leaders": {T0: -1}}, {"unreachable": {1}}])
def test_without_a_leader_nothing_is_compared_and_all_is_told(change: dict[str, Any]) -> None:
    summary = run(cluster(**change))
    assert [each.state for each in summary.partitions[0].replicas] == ["unread"] * 3 and not summary.is_equal
    assert summary.batches == 0


def test_a_replica_whose_log_goes_beyond_its_leaders_is_ahead() -> None:
    admin = cluster()
    admin.replicas[Replica(T0, 3)] = MemoryReplica([*plain_batches(SIZES), *plain_batches([2], END)])
    summary = run(admin)
    assert found(summary) == [("t-0", 3, "ahead", END)]
    assert summary.partitions[0].replicas[2].findings[0].end == END + 2


def test_who_is_in_sync_is_waited_for_and_who_lags_is_equal_as_far_as_it_has_come() -> None:
    admin = cluster(out_of_sync={Replica(T0, 3)})
    admin.replicas[Replica(T0, 2)] = MemoryReplica(plain_batches(SIZES), high_watermark=3, learns=[3, 8, END])
    admin.replicas[Replica(T0, 3)] = MemoryReplica(plain_batches(SIZES[:3]))
    summary = run(admin)
    assert (summary.is_equal, found(summary), set(admin.waits)) == (True, [], {2})
    _, in_sync, late = summary.partitions[0].replicas
    assert (in_sync.state, in_sync.end, in_sync.lag) == ("equal", END, 0)
    assert (late.state, late.end, late.lag, late.in_sync) == ("behind", 8, END - 8, False)
    admin.replicas[Replica(T0, 2)] = MemoryReplica(plain_batches(SIZES), high_watermark=3)
    assert run(admin).partitions[0].replicas[1].lag == END - 3, "it does not learn of more"


def test_compacted_topics_are_compared_by_their_records() -> None:
    keyed = [batch_at(offset, [(b"key", b"%d" % offset)]) for offset in range(4)]
    admin = MemoryAdmin(
        {
            Replica(T0, 1): MemoryReplica(keyed),
            Replica(T0, 2): MemoryReplica(keyed[2:]),
            Replica(T0, 3): MemoryReplica(keyed[:3], high_watermark=4),
        },
        compacted={"t"},
    )
    summary = run(admin)
    assert found(summary) == [("t-0", 3, "missing", 3)] and summary.partitions[0].is_compacted
    admin.compacted.clear()
    assert ("t-0", 2, "missing", 0) in found(run(admin))


def test_all_topics_are_asked_for_at_once_whether_they_are_compacted() -> None:
    admin = cluster(T0, *(TopicPartition(f"t{number}", 0) for number in range(30)), compacted={"t", "t9"})
    assert [each.topic for each in run(admin).partitions if each.is_compacted] == ["t", "t9"]
    assert admin.asked_configs == 1


def test_topics_are_chosen_by_name_by_number_and_by_pattern() -> None:
    others = [TopicPartition("t2", 0), TopicPartition("__offsets", 0)]

    def audits(**options: Any) -> list[tuple[str, int]]:
        admin = cluster(T0, T1, *others, internal={"__offsets"})
        return [(each.topic, each.partition) for each in run(admin, **options).partitions]

    assert audits() == [("t", 0), ("t", 1), ("t2", 0)]
    assert audits(include_internal=True) == [("__offsets", 0), ("t", 0), ("t", 1), ("t2", 0)]
    assert audits(pattern="t") == [("t", 0), ("t", 1)]
    assert audits(topics={"t": (1,), "__offsets": None}) == [("__offsets", 0), ("t", 1)]
    summaries = [run(cluster(T0, *others, internal={"__offsets"}), include_internal=each) for each in (False, True)]
    assert [each.internal_left_out for each in summaries] == [("__offsets",), ()]
    for options, text in (
        ({"topics": {"none": None}}, "'none' does not exist"),
        ({"topics": {"t": (2,)}}, "has no partition 2"),
        ({"pattern": "x.*"}, "No topic's name matches 'x.\\*'"),
        ({"pattern": "__.*"}, "'__offsets' is internal, .*'--internal'"),
    ):
        with pytest.raises(UnknownTopic, match=text):
            audits(**options)


def test_a_topic_that_is_deleted_or_made_anew_meanwhile_is_left_out() -> None:
    warned: list[str] = []
    admin = cluster(T0, TopicPartition("other", 0))
    damage(admin, 2)

    def make_anew(time: int) -> None:
        if time == 2:
            admin.topic_ids["t"] = bytes(16)

    admin.before_plan = make_anew
    summary = audited(admin, AuditOptions("there:1"), admin.run, warn=warned.append)
    assert ([each.topic for each in summary.partitions], summary.is_equal) == (["other"], True)
    assert warned == ["topic 't' was deleted while it was audited"]


def test_a_topic_that_is_deleted_before_anything_is_known_of_it_is_left_out() -> None:
    warned: list[str] = []
    admin = cluster(T0, TopicPartition("other", 0))
    admin.unknown_configs.add("t")
    summary = audited(admin, AuditOptions("there:1"), admin.run, warn=warned.append)
    assert ([each.topic for each in summary.partitions], summary.is_equal) == (["other"], True)
    assert warned == ["topic 't' was deleted while it was audited"]


@pytest.mark.parametrize("damaged", [False, True])
def test_partitions_that_a_topic_gets_meanwhile_are_compared_too(damaged: bool) -> None:
    """As far as another look is made: none is told to be equal that was not looked at."""
    admin = cluster(T0, offline={3})

    def grow(time: int) -> None:
        if time == 2:
            admin.replicas |= cluster(T1).replicas
            if damaged:
                damage(admin, 2, T1)

    admin.before_plan = grow
    summary = run(admin)
    assert [[each.batches for each in partition.replicas[:2]] for partition in summary.partitions] == [[5, 5]] * 2
    assert (("t-1", 2, "damaged", DAMAGED_AT) in found(summary)) == damaged
    assert ("t-1", 3, "offline", 0) in found(summary)


def test_a_silent_broker_is_asked_once_only() -> None:
    admin = cluster(T0, T1)
    asked: list[int] = []

    def read(replica: Replica, offset: int, **rest: Any) -> Any:
        asked.append(replica.broker_id)
        if replica.broker_id == 3:
            raise CannotReachBroker("gone")
        return admin.read_replica(replica, offset, **rest)

    works, known = looking.plan(admin, admin.describe_topics().values(), set())
    reader = looking.Reader(read)
    results = [looking.look(reader, work) for work in works]
    assert not known and [[each.kind for each in result[3].findings] for result in results] == [["unread"]] * 2
    assert asked.count(3) == 1


FINDINGS = st.lists(
    st.builds(
        lambda kind, start, size: Finding(kind, start, start + size, 1, ""),
        st.sampled_from(["damaged", "missing", "ahead", "unread"]),
        st.integers(0, 30),
        st.integers(1, 5),
    ),
    max_size=6,
)


@given(found=FINDINGS, before=FINDINGS)
def test_a_difference_is_confirmed_by_any_at_its_offsets_and_the_rest_by_its_kind(
    found: list[Finding], before: list[Finding]
) -> None:
    def is_confirmed(finding: Finding) -> bool:
        if finding.kind in ("ahead", "unread"):
            return any(each.kind == finding.kind for each in before)
        located = [each for each in before if each.kind in ("damaged", "missing")]
        return any(each.start < finding.end and finding.start < each.end for each in located)

    assert set(looking.unconfirmed(found, before)) == {each for each in found if not is_confirmed(each)}
