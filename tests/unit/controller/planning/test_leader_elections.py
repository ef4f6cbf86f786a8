"""Elections: who may lead, in each situation, as tables."""

from __future__ import annotations

from strandline.controller.planning.leader_elections import (
    LogEnd,
    controlled_shutdown_election,
    offline_election,
    recovery_election,
)


def test_a_clean_election_takes_the_first_able_in_sync_replica_of_the_assignment() -> None:
    assert offline_election([1, 2], [2, 1], []) == 1
    assert offline_election([3, 1, 2], [2], []) == 2


def test_a_clean_election_never_leaves_isr_and_eligible_ones() -> None:
    assert offline_election([2, 3], [1], []) is None


def test_an_in_sync_replica_outside_the_assignment_is_not_elected() -> None:
    assert offline_election([], [9], [9]) is None


def test_an_eligible_replica_leads_where_nobody_in_sync_is_able() -> None:
    assert offline_election([2, 3], [1], [3, 2]) == 2
    assert offline_election([1, 3], [3], [1]) == 3


def test_a_leaving_leader_is_replaced_by_another_in_sync_replica_only() -> None:
    assert controlled_shutdown_election([2, 3], [1, 3]) == 3
    assert controlled_shutdown_election([2, 3], [1]) is None


def test_recovery_takes_the_highest_epoch_before_the_longest_log() -> None:
    assert recovery_election([1, 2, 3], {1: LogEnd(4, 900), 2: LogEnd(5, 10), 3: LogEnd(5, 11)}) == 3


def test_recovery_prefers_the_assignment_among_equals_and_needs_an_answer() -> None:
    assert recovery_election([2, 1], {1: LogEnd(5, 10), 2: LogEnd(5, 10)}) == 2
    assert recovery_election([2, 1], {7: LogEnd(5, 10)}) is None


def test_recovery_prefers_who_led_last_among_equals() -> None:
    assert recovery_election([2, 1], {1: LogEnd(5, 10), 2: LogEnd(5, 10)}, last_known_leader=1) == 1
    assert recovery_election([2, 1], {1: LogEnd(5, 9), 2: LogEnd(5, 10)}, last_known_leader=1) == 2
