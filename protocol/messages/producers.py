"""What idempotent producers ask for before they send: InitProducerId (KIP-98). Names are those of Kafka's schema."""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Request
from strandline.protocol.types import NO_EPOCH, NO_PRODUCER_ID, Int16, Int32, Int64


class InitProducerIdRequest(Request, frozen=True, array_like=True, gc=False):
    """`transactional_id`: None of a producer that is idempotent only. `producer_id`, `producer_epoch`: what it had so
    far (KIP-360), both or neither."""

    transactional_id: str | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = NO_PRODUCER_ID
    producer_epoch: Int16 = NO_EPOCH


class InitProducerIdResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    producer_id: Int64 = NO_PRODUCER_ID
    producer_epoch: Int16 = NO_EPOCH
    throttle_time_ms: Int32 = 0
