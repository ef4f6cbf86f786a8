"""Members of consumer groups by the hundred: each has a connection, sends a heartbeat and commits an offset every
second. Prebuilt frames of Kafka's protocol, one process, one selector: what a broker spends on them can be compared.
"""

from __future__ import annotations

import collections
import selectors
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from benchmarks.systems import System
from strandline.protocol.api import ApiKey
from strandline.protocol.consumer_protocol import Subscription, encode_subscription
from strandline.protocol.kafka.schemas import request_class, write_entity
from strandline.testkit.kafka_client import kafka_frame, made
from support.kafka_socket import KafkaSocket

MEMBERS_PER_GROUP = 10
INTERVAL_S = 1.0
SESSION_TIMEOUT = timedelta(seconds=10)
REBALANCE_TIMEOUT = timedelta(seconds=60)
# The last versions without tagged fields, and of JoinGroup the last that needs no second round.
_FIND_COORDINATOR, _JOIN_GROUP, _SYNC_GROUP, _HEARTBEAT, _OFFSET_COMMIT = 1, 3, 2, 2, 6
_HEARTBEAT_ERROR = slice(12, 14)
"""In an answer, behind its length, correlation id and throttle time."""
_COMMIT_ERROR = slice(-2, None)
"""Of the last partition."""


@dataclass(slots=True)
class Member:
    connection: KafkaSocket
    frames: tuple[bytes, bytes]
    """A heartbeat and a commit."""
    sent_at: collections.deque[float] = field(default_factory=collections.deque)
    turn: int = 0
    received: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Outcome:
    """`refused`: error codes, and how often each came."""

    answered: int = 0
    refused: collections.Counter[int] = field(default_factory=collections.Counter)
    latencies_s: list[float] = field(default_factory=list)


def joined(system: System, topic: str, count: int) -> list[Member]:
    """`count` members in groups of ten, each group stable, each member on a connection to its coordinator."""
    names = [f"{topic}-{number}" for number in range(count // MEMBERS_PER_GROUP)]
    groups = {name: _connections(system, name) for name in names}
    # A new group waits some seconds for more members (KIP-134): all of them at the same time.
    for name, connections in groups.items():
        for connection in connections:
            connection.send(ApiKey.JOIN_GROUP, _JOIN_GROUP, **_join(name, topic))
    standings = {name: _synced(name, connections) for name, connections in groups.items()}
    return [
        Member(connection, _frames(name, topic, place, generation, member))
        for name, connections in groups.items()
        for place, (connection, (generation, member)) in enumerate(zip(connections, standings[name], strict=True))
    ]


def _join(group: str, topic: str) -> dict[str, object]:
    return {
        "group_id": group,
        "session_timeout": SESSION_TIMEOUT,
        "rebalance_timeout": REBALANCE_TIMEOUT,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": encode_subscription(Subscription([topic]))}],
    }


def _synced(group: str, connections: list[KafkaSocket]) -> list[tuple[int, str]]:
    """Of each member, which has asked to join: its generation and id, once all have their (empty) assignments."""
    answers = [connection.receive(ApiKey.JOIN_GROUP, _JOIN_GROUP) for connection in connections]
    for connection, answer in zip(connections, answers, strict=True):
        if answer.error_code or answer.generation_id != answers[0].generation_id:
            raise RuntimeError(f"{group}: its members did not join together: {answer}")
        shares = [{"member_id": each.member_id, "assignment": b""} for each in answer.members]
        sync = {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id}
        connection.send(ApiKey.SYNC_GROUP, _SYNC_GROUP, **sync, assignments=shares)
    for connection in connections:
        if connection.receive(ApiKey.SYNC_GROUP, _SYNC_GROUP).error_code:
            raise RuntimeError(f"{group}: its members got no assignment")
    return [(answer.generation_id, answer.member_id) for answer in answers]


def serve(members: list[Member], seconds: float, on_measure: Callable[[], None], *, warm_up_s: float) -> Outcome:
    """Heartbeats and commits, evenly over each second. `on_measure` is called at both ends of the measured part, what
    is answered between them counts."""
    outcome = Outcome()
    selector = selectors.DefaultSelector()
    for member in members:
        selector.register(member.connection.socket, selectors.EVENT_READ, member)
    step_s = INTERVAL_S / (2 * len(members))
    begin = due = time.perf_counter()
    queue = collections.deque(members)
    is_measured = False
    while (now := time.perf_counter()) < begin + warm_up_s + seconds:
        if not is_measured and now >= begin + warm_up_s:
            is_measured, outcome = True, Outcome()
            on_measure()
        while due <= now:
            member = queue[0]
            queue.rotate(-1)
            member.connection.socket.sendall(member.frames[member.turn])
            # All heartbeats come first, then all commits: every member sends one of each in a second.
            member.turn = 1 - member.turn
            member.sent_at.append(time.perf_counter())
            due += step_s
        for key, _ in selector.select(max(0.0, due - time.perf_counter())):
            _receive(key.data, outcome)
    on_measure()
    selector.close()
    return outcome


def _receive(member: Member, outcome: Outcome) -> None:
    data = member.connection.socket.recv(65536)
    if not data:
        raise RuntimeError("a broker closed a member's connection")
    received = member.received
    received += data
    while len(received) >= 4 and len(received) >= (total := 4 + int.from_bytes(received[:4], "big")):
        is_commit = received[7] == ApiKey.OFFSET_COMMIT
        answer = bytes(received[:total])
        (code,) = struct.unpack(">h", answer[_COMMIT_ERROR if is_commit else _HEARTBEAT_ERROR])
        if code:
            outcome.refused[code] += 1
        outcome.answered += 1
        outcome.latencies_s.append(time.perf_counter() - member.sent_at.popleft())
        del received[:total]


def _frames(group: str, topic: str, partition: int, generation: int, member: str) -> tuple[bytes, bytes]:
    standing = {"group_id": group, "member_id": member}
    offset = {"partition_index": 0, "committed_offset": partition, "committed_metadata": ""}
    return (
        _frame(ApiKey.HEARTBEAT, _HEARTBEAT, **standing, generation_id=generation),
        _frame(
            ApiKey.OFFSET_COMMIT,
            _OFFSET_COMMIT,
            **standing,
            generation_id_or_member_epoch=generation,
            topics=[{"name": topic, "partitions": [offset]}],
        ),
    )


def _frame(api_key: ApiKey, version: int, **fields: object) -> bytes:
    """Its correlation id is the API's key, so that the answer tells what it is."""
    body = write_entity(made(request_class(api_key, version), fields))
    return kafka_frame(api_key, version, body, correlation_id=api_key, flexible=False)


def _connections(system: System, group: str) -> list[KafkaSocket]:
    """To its coordinator, one for each member."""
    deadline = time.monotonic() + 60
    while True:
        connection = KafkaSocket(system.addresses[0])
        answer = connection.ask(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR, key=group)
        connection.close()
        if not answer.error_code:
            return [KafkaSocket((answer.host, answer.port)) for _ in range(MEMBERS_PER_GROUP)]
        if time.monotonic() > deadline:
            raise RuntimeError(f"{system.name}: nobody coordinates {group}: {answer}")
        time.sleep(0.05)
