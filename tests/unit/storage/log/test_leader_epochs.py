"""The leader epoch cache: its rules, and where a follower's tail turns out to diverge."""

from __future__ import annotations

import pytest

from strandline.storage.disk.checkpoints import EpochEntry
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from support.damage_site import DamageSite
from support.storage_site import TP
from support.storage_site import epochs as log_epochs


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(EpochEntry(*entry) for entry in entries)


def entries(epochs: LeaderEpochCache) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in epochs.entries]


def test_epoch_zero_at_offset_zero_is_an_entry_like_any_other() -> None:
    epochs = LeaderEpochCache()
    assert epochs.latest_epoch == -1
    epochs.assign(0, 0)
    assert entries(epochs) == [(0, 0)] and epochs.latest_epoch == 0
    assert epochs.end_offset(0, 5) == (0, 5)


def test_assigning_the_latest_epoch_again_changes_nothing() -> None:
    epochs = cache((3, 10))
    version = epochs.version
    epochs.assign(3, 20)
    assert entries(epochs) == [(3, 10)] and epochs.version == version


def test_an_epoch_without_a_record_is_replaced_by_the_next() -> None:
    epochs = cache((1, 0), (2, 10))
    epochs.assign(5, 10)
    assert entries(epochs) == [(1, 0), (5, 10)]


@pytest.mark.parametrize(("epoch", "start_offset"), [(1, 20), (3, 9)])
def test_an_epoch_or_offset_that_goes_back_is_a_bug(epoch: int, start_offset: int) -> None:
    with pytest.raises(AssertionError):
        cache((1, 0), (2, 10)).assign(epoch, start_offset)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),  # older than all that is known: it ends where the first known one starts
        (2, (2, 10)),
        (3, (2, 10)),  # never seen: the one before tells where it would have begun
        (4, (4, 20)),
        (6, (6, 30)),
        (9, (6, 30)),  # newer than all: everything here is older
    ],
)
def test_an_epoch_ends_where_the_next_known_one_starts(asked: int, answer: tuple[int, int]) -> None:
    assert cache((2, 5), (4, 10), (6, 20)).end_offset(asked, log_end_offset=30) == answer


def test_nothing_known_is_said_so() -> None:
    assert LeaderEpochCache().end_offset(3, 100) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(0, -1), (5, 2), (9, 2), (10, 4), (1000, 6)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert cache((2, 5), (4, 10), (6, 20)).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, []), (5, []), (6, [(2, 5)]), (10, [(2, 5)]), (11, [(2, 5), (4, 10)]), (99, [(2, 5), (4, 10), (6, 20)])],
)
def test_truncating_forgets_epochs_that_start_at_the_new_end(offset: int, left: list[tuple[int, int]]) -> None:
    epochs = cache((2, 5), (4, 10), (6, 20))
    epochs.truncate_to(offset)
    assert entries(epochs) == left
    assert epochs.latest_epoch == (left[-1][0] if left else -1)


@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, [(2, 5), (4, 10)]), (5, [(2, 5), (4, 10)]), (7, [(2, 7), (4, 10)]), (10, [(4, 10)]), (50, [(4, 50)])],
)
def test_raising_the_log_start_keeps_the_epoch_that_wrote_it(offset: int, left: list[tuple[int, int]]) -> None:
    epochs = cache((2, 5), (4, 10))
    epochs.start_at(offset)
    assert entries(epochs) == left


@pytest.mark.parametrize(
    ("log_start", "log_end", "left"),
    [
        (0, 20, [(2, 5), (4, 10)]),
        (7, 10, [(2, 7)]),
        (7, 11, [(2, 7), (4, 10)]),
        (4, 4, []),  # from here on emptied: the epoch of what stood last is known
        (5, 5, [(2, 5)]),
        (7, 7, [(2, 7)]),
        (10, 10, [(4, 10)]),
        (50, 50, [(4, 50)]),
    ],
)
def test_stored_entries_fit_the_log(log_start: int, log_end: int, left: list[tuple[int, int]]) -> None:
    epochs = cache((2, 5), (4, 10))
    epochs.fit(log_start, log_end)
    assert entries(epochs) == left


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
@pytest.mark.parametrize("batches", [3, 45])
@pytest.mark.parametrize("are_segments_gone", [False, True])
def test_a_log_that_was_emptied_keeps_its_last_epoch_start_after_start(
    how: str, batches: int, are_segments_gone: bool
) -> None:
    site = DamageSite()
    manager = site.build(batches=batches, flushed=True)
    log = manager.logs[TP]
    end = log.log_end_offset
    manager.checkpoints.write_high_watermarks({TP: end})
    raise_log_start(log, end, end)
    if are_segments_gone:
        take_off_head(log, check_retention(log, site.disk, end, None), end)
        assert log.size_bytes == 0
    manager.checkpoints.write_log_starts()
    for stop in (how, how, "clean", "kill"):
        assert log_epochs(log) == [(3, end)] and log.log_start_offset == log.log_end_offset == end
        site.stop(manager, stop)
        manager = site.start()
        assert "epochs-rebuilt" not in site.reports.names()
        log = manager.logs[TP]


def test_entries_of_a_damaged_file_that_do_not_rise_are_dropped() -> None:
    assert entries(cache((1, 0), (1, 5), (3, 10), (2, 20), (4, 10), (5, 30))) == [(1, 0), (3, 10), (5, 30)]


def truncation(follower: LeaderEpochCache, follower_end: int, leader: LeaderEpochCache, leader_end: int) -> int:
    """Where a follower ends up: the rule of a fetch that reports divergence, repeated until none is left (KIP-279)."""
    end = follower_end
    for _ in range(20):
        answer = leader.end_offset(follower.latest_epoch, leader_end)
        if answer.epoch == follower.latest_epoch and answer.end_offset >= end:
            return end
        own = follower.end_offset(answer.epoch, end)
        end = min(own.end_offset, answer.end_offset, end)
        follower.truncate_to(end)
        if end == 0:
            return 0
    raise AssertionError("does not end")


@pytest.mark.parametrize(
    ("case", "follower", "follower_end", "leader", "leader_end", "expected"),
    [
        ("A follower behind", [(1, 0)], 10, [(1, 0)], 20, 10),
        ("B follower ahead in the same epoch", [(1, 0)], 20, [(1, 0), (2, 15)], 15, 15),
        ("C follower ahead in a newer epoch", [(1, 0), (2, 10)], 20, [(1, 0), (3, 10)], 12, 10),
        ("D fork in an older epoch", [(1, 0), (2, 10)], 20, [(1, 0), (3, 15)], 30, 10),
        ("E fork inside the leader's epoch", [(1, 0), (2, 10)], 30, [(1, 0), (2, 10), (3, 20)], 40, 20),
        ("F several epochs unknown to each other", [(1, 0), (3, 10), (5, 20)], 30, [(1, 0), (2, 10), (6, 25)], 40, 10),
        ("G no epoch in common", [(1, 0), (3, 10)], 20, [(2, 0), (4, 12)], 20, 0),
    ],
)  # fmt: skip
def test_a_follower_truncates_to_where_the_logs_part(
    case: str,
    follower: list[tuple[int, int]],
    follower_end: int,
    leader: list[tuple[int, int]],
    leader_end: int,
    expected: int,
) -> None:
    assert truncation(cache(*follower), follower_end, cache(*leader), leader_end) == expected
