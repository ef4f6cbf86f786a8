"""The controller's orders as they reach brokers: a refusal is told, and the last of a kind can come a second time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from strandline.broker.network.request import RequestInHand
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import Message
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import MemoryCluster
from support.transcripts.replica_look import Names

KINDS = {
    "LeaderAndIsr": ApiKey.LEADER_AND_ISR,
    "StopReplica": ApiKey.STOP_REPLICA,
    "UpdateMetadata": ApiKey.UPDATE_METADATA,
}


class Orders:
    """Of one cluster. tell: what becomes of a refusal."""

    def __init__(self, cluster: MemoryCluster, names: Names, tell: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._names = names
        self._tell = tell
        self._last: dict[tuple[int, int, str], Message] = {}

    def watch(self, broker_id: int) -> None:
        """Look at what comes to this broker from now on, until its life ends."""
        handlers = self._cluster.broker(broker_id).channel._handlers
        life = self._cluster.nodes[broker_id].lives
        for kind, api_key in KINDS.items():

            async def noted(request: RequestInHand[Any], handle: Any = handlers[api_key], kind: str = kind) -> Message:
                self._last[broker_id, life, kind] = request.message
                answer: Message = await handle(request)
                self._tell_refusal(broker_id, kind, request.message, answer)
                return answer

            handlers[api_key] = noted

    async def repeat(self, broker_id: int, kind: str, life: int | None) -> None:
        """The last order of this kind that came to that life, or to this one, is said again, as of now: one that is as
        old as it was would be refused for that alone."""
        order = self._last[broker_id, life or self._cluster.nodes[broker_id].lives, kind]
        order = msgspec.structs.replace(order, told_at_us=round(common_time() * 1e6))
        handle = self._cluster.broker(broker_id).channel._handlers[KINDS[kind]]
        await handle(cast(RequestInHand[Any], SimpleNamespace(message=order)))

    def _tell_refusal(self, broker_id: int, kind: str, order: Any, answer: Any) -> None:
        partitions = getattr(answer, "partition_errors", [])
        codes = dict.fromkeys(code for code in (answer.error_code, *(each.error_code for each in partitions)) if code)
        for code in codes:
            by, epoch = self._names.text([order.controller_id]), order.controller_epoch
            self._tell(
                f"{self._names.of_id[broker_id]} answers {ErrorCode(code).name} to {kind} of {by}, epoch {epoch}"
            )
