"""How a replica is written: `leads e1, hw 1, log 0..2, e0: m1, e1: m2`.

Offsets are half-open; the values of the log stand behind the leader epoch that they were written in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.broker.replication.partition import Partition
from strandline.protocol.records.batch import scan
from strandline.protocol.records.codec import decode_batch
from strandline.storage.log.log import Log
from strandline.testkit.inspection import log_bytes
from support.transcripts.text import gather


class Names:
    """Brokers are letters in a transcript, in the order of their ids: the first one is broker 1."""

    def __init__(self, letters: Sequence[str]) -> None:
        self.id_of = {letter: broker_id for broker_id, letter in enumerate(letters, 1)}
        self.of_id = {broker_id: letter for letter, broker_id in self.id_of.items()}

    def ids(self, letters: Iterable[str]) -> list[int]:
        return [self.id_of[letter] for letter in letters]

    def text(self, broker_ids: Iterable[int]) -> str:
        return " ".join(self.of_id.get(broker_id, str(broker_id)) for broker_id in broker_ids) or "nobody"


def values_text(values: Iterable[bytes | None]) -> str:
    return " ".join(gather(value.decode() if value is not None else "null" for value in values))


def replica_text(partition: Partition, names: Names) -> str:
    if partition.failed:
        return "failed"
    log = partition.log
    parts = [
        _role(partition, names),
        f"hw {partition.high_watermark}",
        f"log {log.log_start_offset}..{log.log_end_offset}",
        *(f"e{epoch}: {values_text(values)}" for epoch, values in values_by_epoch(log).items()),
    ]
    leadership = partition.leadership
    if leadership is not None and leadership.proposal is not None:
        parts.append(f"wants ISR {names.text(sorted(leadership.proposal.isr))}")
    if leadership is not None and leadership.frozen:
        parts.append("changes no ISR until it is told of a role")
    return ", ".join(parts)


def _role(partition: Partition, names: Names) -> str:
    if partition.leadership is not None:
        return f"leads e{partition.leader_epoch}"
    leader = names.of_id.get(partition.leader_id, "nobody")
    return f"follows {leader} e{partition.leader_epoch}"


def values_by_epoch(log: Log) -> Mapping[int, list[bytes | None]]:
    """From the log start on, damaged or not."""
    found: dict[int, list[bytes | None]] = {}
    data = memoryview(log_bytes(log))
    for at, header in scan(data):
        for record in decode_batch(data[at : at + header.size_bytes], check_crc=False):
            if record.offset >= log.log_start_offset:
                found.setdefault(header.partition_leader_epoch, []).append(record.value)
    return found
