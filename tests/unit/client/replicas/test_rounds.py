"""An audit that goes on: what each round compares, what it tells anew, who lags most."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.replicas.audit import AuditOptions, audited, run_here
from strandline.client.replicas.looking import Begin, Work
from strandline.client.replicas.reading import Replica
from strandline.client.replicas.rounds import Lag, Round, Rounds
from strandline.protocol.messages import LATEST_TIMESTAMP
from strandline.protocol.types import TopicPartition
from support.audited_cluster import DAMAGED_AT, END, SIZES, T0, MemoryAdmin, audited_cluster, damage
from support.damaged_replicas import BEGAN_AT_MS, MemoryReplica, batch_at, cleaned, plain_batches

LATER = [2, 2]


def rounds_of(admin: MemoryAdmin, **options: Any) -> tuple[Rounds, list[list[tuple[int, int]]]]:
    """And which offsets each look compared."""
    seen: list[list[tuple[int, int]]] = []
    run = run_here(admin.read_replica)

    def noted(works: list[Work]) -> Any:
        seen.append([(work.start, work.end) for work in works])
        return run(works)

    return Rounds(admin, AuditOptions(**options), noted), seen


def write_more(admin: MemoryAdmin, *brokers: int) -> None:
    """To these replicas."""
    for broker in brokers:
        admin.replicas[Replica(T0, broker)] = MemoryReplica([*plain_batches(SIZES), *plain_batches(LATER, END)])


def new(told: Round) -> list[tuple[int, str, int]]:
    return [
        (replica.broker_id, each.kind, each.start)
        for partition in told.new
        for replica in partition.replicas
        for each in replica.findings
    ]


def test_each_round_compares_what_has_come_since_the_last() -> None:
    admin = audited_cluster(T0)
    rounds, seen = rounds_of(admin)
    first = rounds.next()
    write_more(admin, 1, 2, 3)
    second = rounds.next()
    assert seen == [[(0, END)], [(END, END + 4)]]
    assert (first.summary.records, second.summary.records) == (3 * END, 3 * 4)
    assert second.max_lag == Lag(T0, 1, END + 4, 0) and not first.new + second.new


def test_a_replica_that_lags_is_named_and_compared_from_where_it_was_once_it_has_come() -> None:
    admin = audited_cluster(T0, out_of_sync={Replica(T0, 3)})
    write_more(admin, 1, 2)
    rounds, seen = rounds_of(admin)
    assert rounds.next().max_lag == Lag(T0, 3, END, 4)
    admin.replicas[Replica(T0, 3)] = MemoryReplica(
        [*plain_batches(SIZES), batch_at(END, [(None, b"other"), (None, b"ones")]), *plain_batches([2], END + 2)]
    )
    told = rounds.next()
    assert seen[1][0] == (END, END + 4)
    assert (new(told), told.max_lag) == ([(3, "different", END)], Lag(T0, 1, END + 4, 0))


def test_a_broker_that_was_away_is_compared_from_where_the_others_were_when_it_left() -> None:
    admin = audited_cluster(T0)
    rounds, _ = rounds_of(admin)
    rounds.next()
    write_more(admin, 1, 2, 3)
    admin.offline = {3}
    assert new(rounds.next()) == [(3, "offline", 0)]
    assert new(rounds.next()) == [], "it is told once"
    stored = admin.replicas[Replica(T0, 3)].stored
    stored[END] = batch_at(END, [(None, b"other"), (None, b"ones")])
    admin.offline = set()
    assert new(rounds.next()) == [(3, "different", END)]
    assert new(rounds.next()) == []
    admin.offline = {3}
    assert new(rounds.next()) == [(3, "offline", 0)], "it is gone again"


def test_damage_is_told_once_however_often_it_is_read() -> None:
    admin = audited_cluster(T0, out_of_sync={Replica(T0, 3)})
    admin.replicas[Replica(T0, 3)] = MemoryReplica(plain_batches(SIZES[:1]))
    damage(admin, 2)
    rounds, seen = rounds_of(admin)
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT)]
    again = rounds.next()
    assert seen[-1] == [(SIZES[0], END)], "the replica that lags is waited for"
    assert new(again) == [] and again.summary.replicas_by_state["different"] == 1


def test_damage_that_is_read_again_for_a_broker_that_was_away_is_not_told_again() -> None:
    admin = audited_cluster(T0, offline={3})
    damage(admin, 2)
    rounds, seen = rounds_of(admin)
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT), (3, "offline", 0)]
    assert new(rounds.next()) == []
    admin.offline = set()
    assert (new(rounds.next()), seen[-1]) == ([], [(0, END)])


def test_a_partition_that_nobody_leads_for_a_while_goes_on_where_it_was_and_its_lag_is_not_known() -> None:
    admin = audited_cluster(T0)
    rounds, seen = rounds_of(admin)
    rounds.next()
    admin.leaders = {T0: -1}
    assert rounds.next().max_lag is None
    admin.leaders = {}
    rounds.next()
    assert seen[-1] == [(END, END)]


def test_who_cannot_be_asked_has_no_lag() -> None:
    rounds, _ = rounds_of(audited_cluster(T0, leaders={T0: 2}, offline={1}))
    assert rounds.next().max_lag == Lag(T0, 2, END, 0)


def test_nothing_is_come_back_to_behind_bytes_that_are_no_batches() -> None:
    admin = audited_cluster(T0)
    admin.replicas[Replica(T0, 2)].stored[DAMAGED_AT] = b"no batch" * 20
    rounds, seen = rounds_of(admin)
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT)]
    assert new(rounds.next()) == [] and seen[-1] == [(END, END)]


@pytest.mark.parametrize(
    ("timestamp", "start"),
    [(LATEST_TIMESTAMP, END), (BEGAN_AT_MS, 0), (BEGAN_AT_MS + 9, 9), (BEGAN_AT_MS + END, END)],
)
def test_an_audit_can_begin_at_a_time_or_at_the_end(timestamp: int, start: int) -> None:
    admin = audited_cluster(T0)
    damage(admin, 2)
    rounds, seen = rounds_of(admin, begin=Begin(timestamp))
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT)] * (start <= DAMAGED_AT)
    assert seen[0] == [(start, END)]
    admin.replicas |= audited_cluster(TopicPartition("t", 1)).replicas
    write_more(admin, 1, 2, 3)
    rounds.next()
    assert seen[-1] == [(END, END + 4), (0, END)], "a partition that came meanwhile is compared whole"


def test_a_log_that_became_shorter_than_what_was_compared_is_compared_whole() -> None:
    admin = audited_cluster(T0)
    rounds, seen = rounds_of(admin)
    write_more(admin, 1, 2, 3)
    rounds.next()
    admin.replicas = audited_cluster(T0).replicas
    damage(admin, 2)
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT)]
    assert seen[1] == [(0, END)]
    rounds.next()
    assert seen[-1] == [(END, END)]


def test_a_broker_that_was_away_while_the_log_was_cut_is_compared_from_where_the_others_were() -> None:
    admin = audited_cluster(T0)
    write_more(admin, 1, 2, 3)
    rounds, seen = rounds_of(admin)
    rounds.next()
    admin.replicas, admin.offline = audited_cluster(T0).replicas, {3}
    rounds.next()
    damage(admin, 3)
    admin.offline = set()
    assert new(rounds.next()) == [(3, "damaged", DAMAGED_AT)] and seen[-1] == [(0, END)]


def test_a_topic_that_was_made_anew_is_compared_whole_and_what_is_found_in_it_is_new() -> None:
    admin = audited_cluster(T0)
    damage(admin, 2)
    rounds, seen = rounds_of(admin)
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT)]
    admin.topic_ids = {T0.topic: bytes(15) + b"\x02"}
    admin.leaders = {T0: -1}
    rounds.next()
    admin.leaders = {}
    assert new(rounds.next()) == [(2, "damaged", DAMAGED_AT)]
    assert seen[-1] == [(0, END)]
    rounds.next()
    assert seen[-1] == [(END, END)]


def test_a_topic_that_is_made_anew_while_it_is_compared_is_compared_whole_in_the_next_round() -> None:
    admin = audited_cluster(T0)
    rounds, seen = rounds_of(admin)
    rounds.next()
    admin.unreachable = {3}  # so that it is looked at again

    def make_anew(time: int) -> None:
        admin.topic_ids = {T0.topic: bytes(15) + b"\x02"} if time > 2 else {}

    admin.before_plan = make_anew
    assert rounds.next().summary.partitions == ()
    admin.unreachable = set()
    rounds.next()
    assert seen[-1] == [(0, END)]


@pytest.mark.parametrize("start", range(5))
def test_a_compacted_partition_can_be_compared_from_any_record_on(start: int) -> None:
    written = [[(b"a", b"1"), (b"a", b"2"), (b"b", b"1")], [(b"b", b"2"), (b"c", b"1")], [(b"d", b"1")]]
    kept = [batch_at(offset, records) for offset, records in zip((0, 3, 5), written, strict=True)]
    admin = MemoryAdmin(
        {
            Replica(T0, 1): MemoryReplica(kept),
            Replica(T0, 2): MemoryReplica([cleaned(kept[0], [False, True, False]), *kept[1:]]),
        },
        compacted={T0.topic},
    )
    options = AuditOptions(begin=Begin(BEGAN_AT_MS + start))
    assert audited(admin, options, admin.run).is_equal
    del admin.replicas[Replica(T0, 2)].stored[3]
    found = audited(admin, options, admin.run)
    assert [(each.start, each.end) for each in found.partitions[0].replicas[1].findings] == [(3, 5)]
