"""A client of groups that speaks in frames: each call is one request to the coordinator, and its answer."""

from __future__ import annotations

from typing import Any

import trio

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    Request,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address, CannotConnect, TransportClosed
from strandline.testkit.cluster import CLIENT, MemoryCluster
from support.raw_client import RawClient

PATIENCE_S = 60.0
PASSES = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class GroupClient:
    """A process with a member in it, or without. Not for several tasks at a time."""

    def __init__(self, cluster: MemoryCluster, group: str = "g", *, instance: str | None = None) -> None:
        self.cluster = cluster
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.coordinator_id = -1
        self._connection: RawClient | None = None

    # --- the coordinator ---------------------------------------------------------------------------------------

    async def ask_any(self, request: Request) -> Any:
        """A live broker's answer."""
        broker_id = next(number for number, node in self.cluster.nodes.items() if node.is_up)
        client = await self._connect(*self.cluster.broker(broker_id).listeners.addresses.values())
        response = await client.request(request)
        client.close()
        assert response is not None
        return response.message

    async def find(self) -> None:
        """Wait until there is one, and connect."""
        self.close()
        with trio.fail_after(PATIENCE_S):
            while self._connection is None:
                found = await self.ask_any(FindCoordinatorRequest(self.group))
                try:
                    if found.error_code == 0:
                        self._connection = await self._connect(Address(found.host, found.port))
                        self.coordinator_id = found.node_id
                        return
                except CannotConnect:
                    pass
                await trio.sleep(0.1)

    async def _connect(self, address: Address) -> RawClient:
        return RawClient(await self.cluster.network.node(CLIENT).connect(address))

    async def ask(self, request: Request) -> Any:
        """One answer of the coordinator, whatever it says; None: the connection broke."""
        if self._connection is None:
            await self.find()
        assert self._connection is not None
        try:
            response = await self._connection.request(request)
        except TransportClosed:
            response = None
        if response is None:
            self.close()
            return None
        return response.message

    async def ask_until_served(self, request: Request) -> Any:
        """As clients do: look for the coordinator again while it moves or loads."""
        with trio.fail_after(PATIENCE_S):
            while True:
                answer = await self.ask(request)
                if answer is not None and code_of(answer) not in PASSES:
                    return answer
                await trio.sleep(0.1)
                await self.find()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- a member ----------------------------------------------------------------------------------------------

    def join_request(self, session_timeout_ms: int = 10_000) -> JoinGroupRequest:
        return JoinGroupRequest(
            self.group,
            session_timeout_ms,
            self.member_id,
            "consumer",
            [JoinGroupRequestProtocol("range", b"all")],
            30_000,
            self.instance,
        )

    async def join(self) -> None:
        """Become a member of the next generation, and get what the leader assigns: a slot by the order of members."""
        while True:
            answer = await self.ask_until_served(self.join_request())
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            assert answer.error_code == 0, answer
            self.member_id, self.generation = answer.member_id, answer.generation_id
            slots = [
                SyncGroupRequestAssignment(member.member_id, self.slot(number))
                for number, member in enumerate(answer.members)
            ]
            synced = await self.ask(SyncGroupRequest(self.group, self.generation, self.member_id, slots, self.instance))
            if synced is not None and synced.error_code == 0:
                self.assignment = synced.assignment
                return

    def slot(self, number: int) -> bytes:
        """What the member of this number is assigned, where this one is the leader."""
        return b"%d" % number

    async def heartbeat(self) -> ErrorCode:
        answer = await self.ask_until_served(
            HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        )
        return ErrorCode(answer.error_code)

    async def leave(self) -> ErrorCode:
        request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id, self.instance)])
        return ErrorCode((await self.ask_until_served(request)).error_code)

    # --- offsets -----------------------------------------------------------------------------------------------

    def commit_request(self, offsets: dict[TopicPartition, int], metadata: str = "") -> OffsetCommitRequest:
        topics = [
            OffsetCommitRequestTopic(tp.topic, [OffsetCommitRequestPartition(tp.partition, offset, 3, metadata)])
            for tp, offset in offsets.items()
        ]
        return OffsetCommitRequest(self.group, topics, self.generation, self.member_id, self.instance)

    async def commit(self, offsets: dict[TopicPartition, int]) -> ErrorCode:
        """As it was answered, however that is."""
        answer = await self.ask(self.commit_request(offsets))
        return ErrorCode(-1) if answer is None else code_of(answer)

    async def committed(self, *wanted: TopicPartition) -> list[int]:
        topics = [OffsetFetchRequestTopic(tp.topic, [tp.partition]) for tp in wanted]
        answer = await self.ask_until_served(OffsetFetchRequest(self.group, topics))
        assert answer.error_code == 0
        return [topic.partitions[0].committed_offset for topic in answer.topics]


def code_of(answer: Any) -> ErrorCode:
    """Of the whole, or of the first partition."""
    code = getattr(answer, "error_code", None)
    return ErrorCode(answer.topics[0].partitions[0].error_code if code is None else code)
