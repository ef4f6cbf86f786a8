"""What makes a producer idempotent: the id that a broker gives it, and the numbers of its batches.

The rules of a partition (KIP-98, KIP-360; its broker's side is `storage/producers/states.py`):
* A batch gets producer id, epoch and base sequence when it is sent first, and keeps them: a broker that has it already
  answers as it did the first time, or with DUPLICATE_SEQUENCE_NUMBER.
* Up to `MAX_IN_FLIGHT` batches are under way, to one broker over one connection; that many a broker recognises. A
  batch follows the one before it there only once a batch before them was acknowledged: a broker that knows nothing
  of the producer would take whichever came first. After a failure, or after a while in which nothing was sent
  (producer.id.expiration.ms: it may have been forgotten), one at a time is sent, from the first on, until one is
  acknowledged.
* OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that failed is no surprise: it is sent again behind that one. For
  the first one it means that one before it is lost for good. Then the partition begins anew, with the next epoch and
  sequence 0: so do batches that are certainly not in the log. Those of which nobody can tell are given up: under new
  numbers they might stand twice.
* INVALID_PRODUCER_EPOCH: somebody else uses this id. The partition begins anew, too, with an id that is asked for.

Of a given identity (`identity`) nothing begins anew, and nothing follows what was given up: no partition has a gap.
A batch that is refused for its numbers, or acknowledged as one that the log has already, fails, since somebody else may
have written that; so does what is behind it. That goes for one that was sent again after its answer was lost, too: the
log has it, or something else under its numbers. And one that lands behind another that failed is not told as delivered:
what is told so is always the beginning of what was sent to a partition.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from strandline.client.errors import BrokerMisbehaved, DeliveryFailed, error_for
from strandline.client.identity import MAX_EPOCH, SEQUENCES, ProducerIdentity
from strandline.client.metadata import SILENT_AFTER_S, backoff_ms
from strandline.client.pipelined import PipelinedConnection
from strandline.client.settings import ProducerSettings
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, Message
from strandline.protocol.types import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment

MAX_IN_FLIGHT = 5
FORGOTTEN_AFTER_S = 60.0
"""Without a batch a leader may forget a producer. Kafka's brokers do so after a day; to be sure costs a roundtrip."""

NUMBERS_REFUSED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Nothing was appended, because of the batch's numbers."""


class Numbering:
    """The numbers of one partition's batches."""

    __slots__ = ("epoch", "failure", "is_given", "is_proven", "is_void", "next_sequence", "producer_id")

    def __init__(self) -> None:
        self.is_given = False
        """By the program: see `ProducerIdentity`."""
        self.failure: DeliveryFailed | None = None
        """Of given numbers: of the first batch that was given up. Nothing more is sent."""
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self.next_sequence = 0
        self.is_void = True
        """Nothing more is sent with these numbers: `begin` anew."""
        self.is_proven = False
        """The last answer, not long ago, was an acknowledgement: the leader knows this producer."""

    @classmethod
    def given(cls, identity: ProducerIdentity, topic_partition: TopicPartition) -> Numbering:
        """From where the program says on."""
        numbering = cls()
        numbering.is_given = True
        numbering.producer_id, numbering.epoch = identity.producer_id, identity.epoch
        numbering.next_sequence = identity.next_sequence.get(topic_partition, 0)
        numbering.is_void = False
        return numbering

    def begin(self, producer_id: int) -> bool:
        """Count from 0, with an epoch that this partition has not seen. False: this id has no more epochs."""
        if producer_id != self.producer_id:
            self.producer_id, self.epoch = producer_id, NO_EPOCH
        if self.epoch == MAX_EPOCH:
            return False
        self.epoch += 1
        self.next_sequence = 0
        self.is_void = self.is_proven = False
        return True

    def note_failure(self, failure: DeliveryFailed) -> None:
        """A batch was given up: nothing may follow it with given numbers."""
        if self.is_given:
            self.failure = self.failure or failure

    def take(self, records_count: int) -> tuple[int, int, int]:
        """(producer id, epoch, base sequence) of the next batch."""
        assert not self.is_void
        base_sequence = self.next_sequence
        self.next_sequence = (base_sequence + records_count) % SEQUENCES
        return self.producer_id, self.epoch, base_sequence


class AskedIdentity:
    """The id of one producer, asked for over the connections that it has anyway. Nothing here waits."""

    def __init__(self, settings: ProducerSettings, environment: ClientEnvironment, wake: Callable[[], None]) -> None:
        self.producer_id: int | None = None
        self.last_error: Exception | None = None
        """Why there is none."""
        self._settings = settings
        self._environment = environment
        self._wake = wake
        self._failures = 0
        self._ask_at = 0.0

    def ask(self, connection: PipelinedConnection, now: float) -> float:
        """Ask for an id, unless somebody was asked or failed to give one a moment ago. When to look again if nothing
        happens before."""
        if now >= self._ask_at:
            self._ask_at = now + SILENT_AFTER_S  # then whoever leads may be asked, too
            try:
                connection.submit(InitProducerIdRequest(), (), self._settings.request_timeout_ms, self._answered)
            except Exception as error:
                self._failed(error)
        return self._ask_at

    def renew(self, producer_id: int) -> None:
        """This id is not to be used any more."""
        if self.producer_id == producer_id:
            self.producer_id, self._ask_at = None, 0.0

    def _answered(self, answer: Message | Exception, _: memoryview) -> None:
        if isinstance(answer, Exception):
            self._failed(answer)
        elif not isinstance(answer, InitProducerIdResponse) or (not answer.error_code and answer.producer_id < 0):
            self._failed(BrokerMisbehaved(f"no producer id in an answer to InitProducerId: {answer}"))
        elif answer.error_code:
            self._failed(error_for(answer.error_code, "asking for a producer id"))
        elif self.producer_id is None:
            self.producer_id = answer.producer_id
            self.last_error, self._failures = None, 0
        self._wake()

    def _failed(self, error: Exception) -> None:
        self.last_error = error
        self._failures += 1
        self._ask_at = trio.current_time() + backoff_ms(self._settings, self._failures, self._environment) / 1000
