"""Znodes: Kafka's JSON byte for byte where it matters, round trips, and data that cannot be understood."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import (
    PERSISTENT_PATHS,
    BrokerEndpoint,
    BrokerIdZnode,
    BrokerIncarnationZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicZnode,
    InvalidZnode,
    IsrChangeNotificationZnode,
    PartitionStateZnode,
    PreferredReplicaElectionZnode,
    ProducerIdBlockZnode,
    ReassignPartitionsZnode,
    TopicZnode,
)

PATH = "/somewhere"


class Znode(Protocol):
    def encode(self) -> bytes: ...

    @classmethod
    def decode(cls, path: str, data: bytes) -> Any: ...


int32 = st.integers(-(2**31), 2**31 - 1)
producer_ids = st.integers(0, 2**63 - 1)
names = st.text("abcXYZ019._-", min_size=1, max_size=8)
broker_ids = st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True)
partitions = st.dictionaries(st.integers(0, 10**6), broker_ids, max_size=4)
topic_partitions = st.lists(st.builds(TopicPartition, names, int32), max_size=4)
endpoints = st.lists(
    st.builds(
        BrokerEndpoint,
        names,
        st.sampled_from(["localhost", "10.0.0.1", "::1", "kafka-0.svc"]),
        st.integers(0, 65535),
        st.sampled_from(["PLAINTEXT", "SSL"]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda endpoint: endpoint.listener,
)


def _led_by(state: PartitionStateZnode, leader: int) -> PartitionStateZnode:
    return msgspec.structs.replace(state, leader=leader)


STRATEGIES: dict[type[Znode], st.SearchStrategy[Any]] = {
    BrokerIdZnode: st.builds(
        BrokerIdZnode,
        endpoints=endpoints.map(tuple),
        timestamp_ms=st.integers(-1, 2**43),
        rack=st.none() | names,
        jmx_port=st.integers(-1, 65535),
        lock_id=names,
        lossy_start=st.booleans(),
        apis=st.dictionaries(st.integers(0, 100), st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3),
        broker_key=names,
    ),
    TopicZnode: st.builds(
        TopicZnode,
        topic_id=st.none() | st.binary(min_size=16, max_size=16).filter(any),
        partitions=partitions,
        adding_replicas=partitions,
        removing_replicas=partitions,
    ),
    PartitionStateZnode: st.builds(
        PartitionStateZnode,
        controller_epoch=int32,
        leader=st.just(-1),
        leader_epoch=st.integers(0, 2**31 - 2),
        isr=broker_ids.filter(len),
        elr=broker_ids,
        last_known_leader=st.integers(-1, 5),
    ).flatmap(lambda state: st.sampled_from([-1, *state.isr]).map(lambda leader: _led_by(state, leader))),
    ControllerZnode: st.builds(ControllerZnode, int32, st.integers(-1, 2**43)),
    ControllerEpochZnode: st.builds(ControllerEpochZnode, int32),
    IsrChangeNotificationZnode: st.builds(IsrChangeNotificationZnode, topic_partitions),
    PreferredReplicaElectionZnode: st.builds(PreferredReplicaElectionZnode, topic_partitions),
    ReassignPartitionsZnode: st.builds(
        ReassignPartitionsZnode,
        st.dictionaries(st.builds(TopicPartition, names, int32), st.lists(int32, max_size=3), max_size=3),
    ),
    ConfigZnode: st.builds(ConfigZnode, st.dictionaries(names, st.text(max_size=8), max_size=3)),
    ConfigChangeZnode: st.builds(ConfigChangeZnode, names.map(lambda name: f"topics/{name}")),
    ClusterIdZnode: st.builds(ClusterIdZnode.new, st.uuids()),
    ProducerIdBlockZnode: st.tuples(int32, producer_ids, producer_ids).map(
        lambda drawn: ProducerIdBlockZnode(drawn[0], min(drawn[1:]), max(drawn[1:]))
    ),
}
every_class = pytest.mark.parametrize("cls", STRATEGIES, ids=lambda cls: cls.__name__)


@every_class
@settings(max_examples=40)
@given(data=st.data())
def test_every_znode_comes_back_as_it_was(cls: type[Znode], data: st.DataObject) -> None:
    znode = data.draw(STRATEGIES[cls])
    assert cls.decode(PATH, znode.encode()) == znode


@every_class
@settings(max_examples=60)
@given(garbage=st.binary(max_size=30) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["version", "partitions", "isr", "leader", "id", "config", "x"]), inner),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_garbage_never_raises_anything_but_invalid_znode(cls: type[Znode], garbage: bytes) -> None:
    try:
        cls.decode(PATH, garbage)
    except InvalidZnode as error:
        assert str(error).startswith(f"znode {PATH} cannot be read: ")


@every_class
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b"{}", b'"text"', b"\xff\xfe", b"true", b"[" * 200_000, b" " * 1_048_577],
    ids=["empty", "cut", "null", "list", "no fields", "text", "not UTF-8", "true", "deep", "above 1 MiB"],
)
def test_what_is_not_the_znodes_json_is_refused_with_path_and_reason(cls: type[Znode], data: bytes) -> None:
    with pytest.raises(InvalidZnode, match=PATH):
        cls.decode(PATH, data)


@every_class
def test_fields_of_the_future_are_ignored(cls: type[Znode]) -> None:
    fields = json.loads(_EXAMPLES[cls])
    if isinstance(fields, dict):
        assert cls.decode(PATH, json.dumps({**fields, "future": [1]}).encode()) == cls.decode(PATH, _EXAMPLES[cls])


TOPIC_ID = bytes(range(16))
_BUILT: dict[type[Znode], Callable[[], Znode]] = {
    BrokerIdZnode: lambda: BrokerIdZnode(
        endpoints=(BrokerEndpoint("PLAINTEXT", "node1", 9092),),
        timestamp_ms=1_500_000_000_000,
        rack="r1",
        lock_id="d",
        apis={0: (0, 1)},
        broker_key="0a",
    ),
    TopicZnode: lambda: TopicZnode(TOPIC_ID, {0: [1, 2], 10: [2]}, {0: [3]}, {0: [1]}),
    PartitionStateZnode: lambda: PartitionStateZnode(controller_epoch=29, leader=2, leader_epoch=48, isr=[2]),
    ControllerZnode: lambda: ControllerZnode(8, 1_500_000_000_000),
    ControllerEpochZnode: lambda: ControllerEpochZnode(29),
    IsrChangeNotificationZnode: lambda: IsrChangeNotificationZnode([TopicPartition("t", 8)]),
    PreferredReplicaElectionZnode: lambda: PreferredReplicaElectionZnode([TopicPartition("t", 8)]),
    ReassignPartitionsZnode: lambda: ReassignPartitionsZnode({TopicPartition("t", 1): [1, 2, 3]}),
    ConfigZnode: lambda: ConfigZnode({"retention.ms": "1"}),
    ConfigChangeZnode: lambda: ConfigChangeZnode("topics/t"),
    ClusterIdZnode: lambda: ClusterIdZnode.new(UUID(int=1)),
    ProducerIdBlockZnode: lambda: ProducerIdBlockZnode(2, 0, 999),
}
_EXAMPLES = {
    BrokerIdZnode: b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://node1:9092"],'
    b'"jmx_port":-1,"features":{},"host":"node1","timestamp":"1500000000000","port":9092,"version":5,"rack":"r1",'
    b'"lock_id":"d","lossy_start":false,"apis":{"0":[0,1]},"broker_key":"0a"}',
    TopicZnode: b'{"removing_replicas":{"0":[1]},"partitions":{"10":[2],"0":[1,2]},'
    b'"topic_id":"AAECAwQFBgcICQoLDA0ODw","adding_replicas":{"0":[3]},"version":3}',
    PartitionStateZnode: b'{"controller_epoch":29,"leader":2,"version":1,"leader_epoch":48,"isr":[2]}',
    ControllerZnode: b'{"version":2,"brokerid":8,"timestamp":"1500000000000","kraftControllerEpoch":-1}',
    ControllerEpochZnode: b"29",
    IsrChangeNotificationZnode: b'{"version":1,"partitions":[{"topic":"t","partition":8}]}',
    PreferredReplicaElectionZnode: b'{"version":1,"partitions":[{"topic":"t","partition":8}]}',
    ReassignPartitionsZnode: b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1,2,3]}]}',
    ConfigZnode: b'{"version":1,"config":{"retention.ms":"1"}}',
    ConfigChangeZnode: b'{"version":2,"entity_path":"topics/t"}',
    ClusterIdZnode: b'{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAQ"}',
    ProducerIdBlockZnode: b'{"version":1,"broker":2,"block_start":"0","block_end":"999"}',
}


@every_class
def test_what_is_written_is_kafkas_json_with_all_its_fields(cls: type[Znode]) -> None:
    assert json.loads(_BUILT[cls]().encode()) == json.loads(_EXAMPLES[cls])
    assert cls.decode(PATH, _EXAMPLES[cls]) == _BUILT[cls]()


def test_a_partition_state_is_written_in_the_order_of_the_documentation() -> None:
    assert _BUILT[PartitionStateZnode]().encode() == _EXAMPLES[PartitionStateZnode]


@pytest.mark.parametrize(
    "cls",
    [cls for cls in STRATEGIES if cls not in (ControllerEpochZnode, ClusterIdZnode)],
    ids=lambda cls: cls.__name__,
)
@pytest.mark.parametrize("version", [99, 0, -1])
def test_a_version_that_this_build_does_not_know_is_refused(cls: type[Znode], version: int) -> None:
    fields = json.loads(_EXAMPLES[cls])
    with pytest.raises(InvalidZnode, match="version"):
        cls.decode(PATH, json.dumps({**fields, "version": version}).encode())


def test_paths_are_kafkas() -> None:
    assert BrokerIdZnode.path(3) == "/brokers/ids/3"
    assert BrokerIncarnationZnode.path(3) == "/brokers/incarnations/3"
    assert TopicZnode.path("t") == "/brokers/topics/t"
    assert PartitionStateZnode.path("t", 7) == "/brokers/topics/t/partitions/7/state"
    assert DeleteTopicZnode.path("t") == "/admin/delete_topics/t"
    assert ConfigZnode.path("t") == "/config/topics/t"
    assert ConfigZnode.path("1", "brokers") == "/config/brokers/1"
    assert (ControllerZnode.PATH, ControllerEpochZnode.PATH, ClusterIdZnode.PATH) == (
        "/controller",
        "/controller_epoch",
        "/cluster/id",
    )
    assert ReassignPartitionsZnode.PATH == "/admin/reassign_partitions"
    assert PreferredReplicaElectionZnode.PATH == "/admin/preferred_replica_election"
    assert IsrChangeNotificationZnode.SEQUENCE_PATH == "/isr_change_notification/isr_change_"
    assert ConfigChangeZnode.SEQUENCE_PATH == "/config/changes/config_change_"
    assert {"/brokers/ids", "/brokers/topics", "/brokers/incarnations", "/config/changes"} <= {*PERSISTENT_PATHS}


def test_the_registration_of_an_old_broker_has_its_host_as_only_endpoint() -> None:
    znode = BrokerIdZnode.decode(PATH, b'{"jmx_port":-1,"host":"node1","version":1,"port":9092}')
    assert znode.endpoints == (BrokerEndpoint("PLAINTEXT", "node1", 9092),)


def test_a_topic_made_by_an_old_tool_has_no_id() -> None:
    assert TopicZnode.decode(PATH, b'{"version":1,"partitions":{"0":[2]}}') == TopicZnode(None, {0: [2]})


def test_partitions_come_in_the_order_of_their_numbers() -> None:
    znode = TopicZnode.decode(PATH, b'{"version":1,"partitions":{"12":[6],"8":[2],"1":[3]}}')
    assert list(znode.partitions) == [1, 8, 12]


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":3,"partitions":{"x":[1]}}',
        b'{"version":3,"partitions":{"-1":[1]}}',
        b'{"version":3,"partitions":{"07":[1]}}',
        b'{"version":3,"partitions":{"0":[1,2,1]}}',
        b'{"version":3,"partitions":{"0":[-1]}}',
        b'{"version":3,"partitions":{"0":[true]}}',
        b'{"version":3,"partitions":{"0":[99999999999]}}',
        b'{"version":3,"partitions":{"0":1}}',
        b'{"version":3,"partitions":{},"topic_id":"short"}',
        b'{"version":3,"partitions":{},"topic_id":"!!!!!!!!!!!!!!!!!!!!!!"}',
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidZnode):
        TopicZnode.decode(PATH, data)


@pytest.mark.parametrize("endpoint", ["node1:9092", "PLAINTEXT://node1", "PLAINTEXT://node1:99999", "://x:1", ""])
def test_an_endpoint_that_nobody_can_connect_to_is_refused(endpoint: str) -> None:
    data = json.dumps({"version": 5, "host": None, "port": -1, "endpoints": [endpoint]}).encode()
    with pytest.raises(InvalidZnode, match="endpoint"):
        BrokerIdZnode.decode(PATH, data)


@pytest.mark.parametrize(
    ("start", "end"),
    [("5", "4"), ("-1", "9"), ("0", str(2**63)), ("0", "9" * 5000), ("1e3", "1e4"), ("", ""), (" 1", "2"), ("١", "2")],
)
def test_a_block_of_impossible_producer_ids_is_refused(start: str, end: str) -> None:
    data = json.dumps({"version": 1, "broker": 1, "block_start": start, "block_end": end}).encode()
    with pytest.raises(InvalidZnode, match=PATH):
        ProducerIdBlockZnode.decode(PATH, data)


def test_a_block_whose_ids_are_numbers_is_refused_as_kafka_does() -> None:
    with pytest.raises(InvalidZnode, match="block_start"):
        ProducerIdBlockZnode.decode(PATH, b'{"version":1,"broker":1,"block_start":0,"block_end":"999"}')
