"""Logs of idempotent producers, ended at every disk operation: what is known of each is what its batches say, whatever
snapshots were written by then (`check_producers`), so that no repetition is ever appended a second time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.storage.disk.removal import remove
from strandline.storage.log.checked_append import Appended, append_checked
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from strandline.storage.manager.log_manager import LogManager
from support.crash_points import (
    Point,
    anything_without_a_hole,
    part_of_the_head_is_gone,
    part_of_what_is_appended,
    part_of_what_is_cut_off,
)
from support.storage_site import TOPIC_ID, TP, produced

QUIET = 5
"""A producer that wrote once, long ago."""


def send(log: Log, producer_id: int, sequence: int, count: int = 1) -> Appended:
    (outcome,) = append_checked(log, [produced(count, 1000 + sequence, producer=(producer_id, 0, sequence))], 0)
    assert isinstance(outcome, Appended)
    return outcome


@pytest.fixture
def log(broker: Any) -> Log:
    """Three producers over six segments; twelve batches are durable, with a snapshot at each roll."""
    broker.site.config = replace(broker.site.config, segment_bytes=500, index_interval_bytes=100, retention_bytes=1000)
    log: Log = broker.start().create(TP, TOPIC_ID)
    send(log, QUIET, 0)
    for sequence in range(7):
        send(log, 1, sequence)
        send(log, 2, 2 * sequence, 2)
        if sequence == 4:
            log.flushed(log.flush_plan()())
            broker.manager.checkpoints.write_recovery_points()
    return log


def repetitions_are_known(manager: LogManager, point: Point, is_power_loss: bool) -> None:
    """What a client sends again after the crash, since it got no answer, is not appended twice."""
    log = manager.logs[TP]
    end = log.log_end_offset
    for producer_id in (1, 2):
        producer = log.producers.states.get(producer_id)
        if producer is not None and producer.batches:
            last = producer.batches[-1]
            again = send(log, producer_id, last.base_sequence, last.last_sequence - last.base_sequence + 1)
            assert again.is_repetition and again.base_offset == last.base_offset
    assert log.log_end_offset == end


def test_a_wave_over_rolls(broker: Any, log: Log) -> None:
    def operate() -> None:
        entries = [produced(1, 2000 + place, producer=(1, 0, 7 + place)) for place in range(9)]
        append_checked(log, entries, 0)

    broker.survives(operate, between=part_of_what_is_appended, also=repetitions_are_known)


def test_a_flush_that_writes_snapshots(broker: Any, log: Log) -> None:
    def operate() -> None:
        log.flushed(log.flush_plan()())
        broker.manager.checkpoints.write_recovery_points()

    broker.survives(operate, also=repetitions_are_known)


@pytest.mark.parametrize("offset", [20, 15, 9, 2])
def test_a_cut(broker: Any, log: Log, offset: int) -> None:
    broker.survives(lambda: log.truncate_to(offset), between=part_of_what_is_cut_off, also=repetitions_are_known)


def test_a_cut_after_which_the_same_sequences_come_again(broker: Any, log: Log) -> None:
    def operate() -> None:
        log.truncate_to(10)
        broker.remember()
        producer = log.producers.states.get(1)
        assert producer is not None
        for sequence in range(producer.batches[-1].last_sequence + 1, 9):
            send(log, 1, sequence)
        log.flushed(log.flush_plan()())

    broker.survives(operate, between=lambda before, after, found: len(found.batches) >= 6, also=repetitions_are_known)


def test_a_log_that_starts_anew(broker: Any, log: Log) -> None:
    broker.survives(lambda: log.truncate_fully_and_start_at(40), between=anything_without_a_hole)


def test_a_head_that_takes_a_producers_only_batch(broker: Any, log: Log) -> None:
    def operate() -> None:
        raise_log_start(log, 8, log.log_end_offset)
        take_off_head(log, check_retention(log, broker.site.disk, 15, None), 15)
        broker.manager.checkpoints.write_log_starts()
        broker.manager.removals.due(0)
        remove(broker.site.disk, broker.manager.removals.due(10**9))

    broker.survives(operate, between=part_of_the_head_is_gone, also=repetitions_are_known)


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop(broker: Any, log: Log, clean: bool) -> None:
    broker.survives(lambda: broker.manager.close(clean=clean), also=repetitions_are_known)


def test_a_clean_start(broker: Any, log: Log) -> None:
    from support.log_audit import states_of

    before = states_of(broker.manager)
    broker.manager.close(clean=True)
    broker.survives(broker.start, before=before, also=repetitions_are_known)
