"""The identity under which a program produces: told by the program, not asked of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.client.errors import InvalidClientConfig
from strandline.protocol.types import TopicPartition

SEQUENCES = 2**31
"""Sequences run from 0 to 2^31 - 1, and on with 0."""
MAX_EPOCH = 2**15 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Producer id, epoch, and the sequence of the first record that goes to each partition (0 where none is given).

    For programs that may be started again, and then send the same records with the same numbers: those that the log has
    by then are refused as `SequenceTaken`. What a leader knows, and so what this protects from:
    * It knows the last five batches of an id, until nothing came from it for `producer.id.expiration.ms` (a day). It
      takes any first number of an id that it does not know: then records may stand twice. Who may come back so late
      looks into the log first (`Admin.describe_producers`, `protocol.records.of_producer`).
    * A higher epoch begins with sequence 0 in each partition, and shuts lower ones out of the partitions that it wrote
      to: `ProducerFenced`. Elsewhere the leader has not heard of it.
    * Numbers are per id: who makes them up must know that nobody else does, and brokers give out ids from 0 on.
    InvalidClientConfig on what cannot be one.
    """

    producer_id: int
    epoch: int = 0
    next_sequence: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.producer_id < 2**63:
            raise InvalidClientConfig(f"identity: producer_id={self.producer_id!r}: 0 to 2^63 - 1")
        if not 0 <= self.epoch <= MAX_EPOCH:
            raise InvalidClientConfig(f"identity: epoch={self.epoch!r}: 0 to {MAX_EPOCH}")
        for partition, sequence in self.next_sequence.items():
            if not 0 <= sequence < SEQUENCES:
                raise InvalidClientConfig(f"identity: next_sequence={sequence!r} of {partition}: 0 to 2^31 - 1")
