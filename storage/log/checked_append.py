"""Appending as leader what idempotent producers may have sent before: each entry is new, a repetition, or refused.

An entry is what one request holds for the partition: several batches without producer id, or one batch with. All of a
wave is decided before its first byte is written, entry after entry, each knowing the ones before: so a repetition in
the same wave is found, too, and one bad entry fails alone. The states may run ahead of the file within a wave, since a
write that fails ends the log's life. Only where the wave may need another segment, entries are written one by one: the
snapshot that is taken at a roll holds exactly what stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.protocol.records.validation import ProducedBatch
from strandline.storage.errors import ProducerRefused
from strandline.storage.log.log import Log
from strandline.storage.producers.states import AppendedBatch, ProducerStates


class Appended(NamedTuple):
    """Where the records of an entry stand: [base_offset, next_offset). timestamp_ms: of a repetition, its first
    append's largest; −1 otherwise."""

    base_offset: int
    next_offset: int
    timestamp_ms: int = -1
    is_repetition: bool = False


Outcome = Appended | ProducerRefused


def append_checked(log: Log, entries: Sequence[Sequence[ProducedBatch]], leader_epoch: int) -> list[Outcome]:
    """Append the entries that are new; returns one outcome per entry. LogStorageError: as `Log.append_as_leader`."""
    log.ready()
    sizes = timestamps = records = 0
    for entry in entries:
        for batch in entry:
            sizes += batch.size_bytes
            records += batch.records_count
            timestamps = max(timestamps, batch.max_timestamp_ms)
    if log.may_roll(sizes, timestamps, log.log_end_offset + records):
        return [_append_alone(log, entry, leader_epoch) for entry in entries]
    states = log.producers.states
    outcomes: list[Outcome] = []
    wave: list[ProducedBatch] = []
    offset = log.log_end_offset
    for entry in entries:
        outcome = _decide(states, entry, offset)
        outcomes.append(outcome)
        if isinstance(outcome, Appended) and not outcome.is_repetition:
            _note(states, entry[0], outcome)
            wave += entry
            offset = outcome.next_offset
    if wave:
        log.append_as_leader(wave, leader_epoch)
    return outcomes


def _append_alone(log: Log, entry: Sequence[ProducedBatch], leader_epoch: int) -> Outcome:
    states = log.producers.states
    outcome = _decide(states, entry, log.log_end_offset)
    if isinstance(outcome, Appended) and not outcome.is_repetition:
        log.append_as_leader(entry, leader_epoch)
        _note(states, entry[0], outcome)
    return outcome


def _decide(states: ProducerStates, entry: Sequence[ProducedBatch], offset: int) -> Outcome:
    """Of an entry that would begin at `offset`."""
    first = entry[0]
    if first.producer_id >= 0:
        assert len(entry) == 1, "validated: one batch per idempotent producer, partition and request"
        try:
            known = states.check(first.producer_id, first.producer_epoch, first.base_sequence, first.records_count)
        except ProducerRefused as refused:
            return refused
        if known is not None:
            return _repetition(known)
    return Appended(offset, offset + sum(batch.records_count for batch in entry))


def _repetition(known: AppendedBatch) -> Appended:
    return Appended(known.base_offset, known.last_offset + 1, known.timestamp_ms, is_repetition=True)


def _note(states: ProducerStates, batch: ProducedBatch, appended: Appended) -> None:
    if batch.producer_id >= 0:
        states.note(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            appended.base_offset,
            appended.next_offset - 1,
            batch.max_timestamp_ms,
        )
