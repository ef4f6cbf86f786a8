"""Groups in every version of Kafka's protocol, against a whole broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import CreatableTopic
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.kafka_client import KafkaClient

SECOND = timedelta(seconds=1)


class Speaker:
    """Asks in one version, or in the newest that an API has below it."""

    def __init__(self, client: KafkaClient, version: int) -> None:
        self.client = client
        self.version = version

    def version_of(self, key: ApiKey) -> int:
        lowest, highest = APIS[key].kafka or (0, 0)
        return max(lowest, min(self.version, highest))

    async def ask(self, api: ApiKey, /, **fields: Any) -> Any:
        return await self.client.ask(api, self.version_of(api), **fields)

    async def find(self) -> None:
        version = self.version_of(ApiKey.FIND_COORDINATOR)
        asked: dict[str, Any] = {"coordinator_keys": ("g",)} if version >= 4 else {"key": "g"}
        while True:
            answer = await self.ask(ApiKey.FIND_COORDINATOR, **asked)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code == 0:
                assert found.node_id == 1
                return
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(0.5)

    async def join(self, member_id: str = "") -> Any:
        version = self.version_of(ApiKey.JOIN_GROUP)
        fields: dict[str, Any] = {"rebalance_timeout": 30 * SECOND} if version >= 1 else {}
        while True:
            answer = await self.ask(
                ApiKey.JOIN_GROUP,
                group_id="g",
                session_timeout=10 * SECOND,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"said"}],
                **fields,
            )
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return answer
            await trio.sleep(0.1)

    async def committed(self) -> Any:
        version = self.version_of(ApiKey.OFFSET_FETCH)
        topics = [{"name": "t", "partition_indexes": (0, 1)}]
        if version < 8:
            answer = await self.ask(ApiKey.OFFSET_FETCH, group_id="g", topics=topics)
            return answer.topics[0].partitions
        answer = await self.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": topics}])
        return answer.groups[0].topics[0].partitions


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_commits_and_leaves_in_every_version(version: int, autojump_clock: MockClock) -> None:
    async with MemoryCluster(1, config={"offsets.topic.num.partitions": "1"}).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topics([CreatableTopic("t", num_partitions=2)])
        (address,) = cluster.broker(1).listeners.addresses.values()
        speaker = Speaker(KafkaClient(await cluster.network.node("kafka client").connect(address)), version)
        await speaker.find()

        joined = await speaker.join()
        if speaker.version_of(ApiKey.JOIN_GROUP) >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = await speaker.join(joined.member_id)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id
        assert [member.metadata for member in joined.members] == [b"said"]
        member = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        synced = await speaker.ask(
            ApiKey.SYNC_GROUP,
            **member,
            **(named if speaker.version_of(ApiKey.SYNC_GROUP) >= 5 else {}),
            assignments=[{"member_id": joined.member_id, "assignment": b"all"}],
        )
        assert (synced.error_code, synced.assignment) == (0, b"all")
        assert (await speaker.ask(ApiKey.HEARTBEAT, **member)).error_code == 0
        assert (await speaker.ask(ApiKey.HEARTBEAT, **member | {"generation_id": 2})).error_code == 22

        answer = await speaker.ask(
            ApiKey.OFFSET_COMMIT,
            group_id="g",
            generation_id_or_member_epoch=1,
            member_id=joined.member_id,
            topics=[
                {
                    "name": "t",
                    "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}],
                }
            ],
        )
        assert answer.topics[0].partitions[0].error_code == 0
        first, second = await speaker.committed()
        assert (first.committed_offset, first.metadata, second.committed_offset) == (7, "m", -1)

        described = await speaker.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])
        assert described.groups[0].group_state == "Stable"
        assert described.groups[0].members[0].member_assignment == b"all"
        listed = await speaker.ask(ApiKey.LIST_GROUPS)
        assert [group.group_id for group in listed.groups] == ["g"]

        if speaker.version_of(ApiKey.LEAVE_GROUP) >= 3:
            left = await speaker.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": joined.member_id}])
            assert left.members[0].error_code == 0
        else:
            left = await speaker.ask(ApiKey.LEAVE_GROUP, group_id="g", member_id=joined.member_id)
        assert left.error_code == 0
        gone = await speaker.ask(
            ApiKey.OFFSET_DELETE, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}]
        )
        assert (gone.error_code, gone.topics[0].partitions[0].error_code) == (0, 0)
        deleted = await speaker.ask(ApiKey.DELETE_GROUPS, groups_names=["g", "other"])
        assert [result.error_code for result in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        speaker.client.close()
