"""What `strandline status` knows of a cluster, as the JSON document of `--output json`: of one that `up` started by its
processes, of any other by what its brokers say. What is not known is null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.cli.cluster_picture import nobody_controls
from strandline.cli.cluster_problems import problems_of
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.protocol.types import NO_BROKER

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.cli.cluster import EmbeddedCluster
    from strandline.client.metadata import BrokerView
    from strandline.client.reassignments import OngoingReassignment
    from strandline.protocol.messages import MetadataPartition, MetadataResponse
    from strandline.protocol.types import TopicPartition
    from strandline.runtime.network import Address

ANSWER_TIMEOUT_MS = 5000
"""A member that is up answers within milliseconds; on a busy machine a second was too short to call one silent."""


def embedded_report(cluster: EmbeddedCluster, ports: Mapping[int, Address]) -> dict[str, Any]:
    """ports: admin ports by the command line."""
    from strandline import Admin
    from strandline.cli.cluster_probe import ask_brokers
    from strandline.client.metadata import BrokerView

    alive = {i: cluster.address(i) for i, daemon in cluster.brokers.items() if daemon.is_alive}
    answers = ask_brokers(alive, topics=None, timeout_ms=ANSWER_TIMEOUT_MS)
    brokers = []
    for broker_id, daemon in cluster.brokers.items():
        state = "up" if broker_id in answers else "silent" if broker_id in alive else "dead"
        resident = daemon.id.resident_bytes() if daemon.id and broker_id in alive else None
        pid = daemon.id.pid if daemon.id else None
        brokers.append(
            {"id": broker_id, "state": state, "address": str(cluster.address(broker_id)), "pid": pid,
             "resident_bytes": resident, "log": str(daemon.log_path), "admin_address": None}
        )  # fmt: skip
    zookeeper = cluster.zookeeper.process
    answers_too = cluster.zookeeper.answers(ANSWER_TIMEOUT_MS / 1000)
    members: dict[str, Any] = {
        "data_dir": str(cluster.data_dir),
        "bootstrap_servers": cluster.bootstrap_servers,
        "zookeeper": {
            "state": "up" if answers_too else "silent" if zookeeper.is_alive else "dead",
            "address": cluster.zookeeper.address,
            "pid": zookeeper.id.pid if zookeeper.id else None,
            "resident_bytes": zookeeper.id.resident_bytes() if zookeeper.id and zookeeper.is_alive else None,
            "log": str(zookeeper.log_path),
        },
        "brokers": brokers,
    }
    witness = _best(answers)
    if witness is None:
        return _whole(members, what_witness_says(None, {}))
    living = {broker_id: BrokerView(broker_id, address) for broker_id, address in alive.items()}
    with Admin(",".join(str(alive[each]) for each in answers), request_timeout_ms=ANSWER_TIMEOUT_MS) as admin:
        return _told(members, admin, witness, answers, living, ports)


def remote_report(admin: Admin, servers: str, ports: Mapping[int, Address]) -> dict[str, Any]:
    """Of a cluster whose processes are not known here. A broker is `up`; `silent` where it is registered and does not
    answer at the address that it advertises; `gone` where it holds replicas and is not registered. servers: whom the
    admin client asks first. NoBrokerReachable."""
    from strandline.cli.cluster_probe import ask_brokers

    view = admin.describe_cluster(timeout_ms=LOOK_TIMEOUT_MS)
    addresses = {broker_id: broker.address for broker_id, broker in view.brokers.items()}
    answers = ask_brokers(addresses, topics=None, timeout_ms=ANSWER_TIMEOUT_MS)
    witness = _best(answers)
    states = {broker_id: "up" if broker_id in answers else "silent" for broker_id in addresses}
    for partition in _partitions(witness).values():
        for broker_id in partition.replica_nodes:
            states.setdefault(broker_id, "gone")
    members: dict[str, Any] = {
        "data_dir": None,
        "bootstrap_servers": servers,
        "zookeeper": None,
        "brokers": [
            {"id": broker_id, "state": state, "address": str(addresses[broker_id]) if broker_id in addresses else None,
             "pid": None, "resident_bytes": None, "log": None, "admin_address": None}
            for broker_id, state in sorted(states.items())
        ],
    }  # fmt: skip
    if witness is None:
        return _whole(members, what_witness_says(None, {}))
    return _told(members, admin, witness, answers, view.brokers, ports)


def _best(answers: Mapping[int, MetadataResponse]) -> MetadataResponse | None:
    """Each broker answers from its own copy; the one that knows most of the others is the best witness."""
    return max(answers.values(), key=lambda answer: len(answer.brokers), default=None)


def _told(
    members: Mapping[str, Any],
    admin: Admin,
    witness: MetadataResponse,
    answers: Mapping[int, MetadataResponse],
    living: Mapping[int, BrokerView],
    ports: Mapping[int, Address],
) -> dict[str, Any]:
    """By the witness, and by the admin ports of those that answer. One that does not is asked there, too, where the
    command line says where that is."""
    asked = {broker_id: broker for broker_id, broker in living.items() if broker_id in answers or broker_id in ports}
    problems, untold, addresses = problems_of(admin, asked, witness.cluster_id, ports)
    for broker in members["brokers"]:
        if address := addresses.get(broker["id"]):
            broker["admin_address"] = str(address)
    moving, is_led = _moves(admin, witness)
    said = what_witness_says(witness, moving)
    if not is_led:
        said["controller_id"] = NO_BROKER
    return _whole(members, {**said, "problems": problems, "problems_untold": untold})


def _whole(members: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    zookeeper = members["zookeeper"]
    is_healthy = (
        told["controller_id"] not in (None, NO_BROKER)
        and (zookeeper is None or zookeeper["state"] == "up")
        and not any(each["kind"] == "zookeeper" for each in told.get("problems", ()))
        and all(broker["state"] == "up" for broker in members["brokers"])
        and not told["without_leader"]
        and not told["under_replicated"]
        and not told["unfinished_deletions"]
    )
    return {"problems": None, "problems_untold": None, **members, **told, "healthy": is_healthy}


def _moves(admin: Admin, witness: MetadataResponse) -> tuple[Mapping[TopicPartition, OngoingReassignment], bool]:
    """What is being moved of the partitions that seem to lack replicas; nothing where the controller does not say. And
    whether somebody is the controller, as far as is known: he is asked in any case, since brokers go on naming one who
    has lost ZooKeeper."""
    lacking = [tp for tp, each in _partitions(witness).items() if len(each.isr_nodes) < len(each.replica_nodes)]
    from strandline.cli.topics_describe import MOVES_TIMEOUT_MS
    from strandline.client.errors import ClientError

    try:
        return admin.list_partition_reassignments(lacking or None, timeout_ms=MOVES_TIMEOUT_MS), True
    except ClientError as error:
        return {}, not nobody_controls(error)


def what_witness_says(
    witness: MetadataResponse | None, moving: Mapping[TopicPartition, OngoingReassignment]
) -> dict[str, Any]:
    """Of the controller, partitions and topics; None for each where nobody says. moving: to other brokers."""
    controller_id = None if witness is None else witness.controller_id
    return {"controller_id": controller_id, **_counts(witness, moving), **_reasons(witness)}


def _partitions(witness: MetadataResponse | None) -> dict[TopicPartition, MetadataPartition]:
    from strandline.protocol.types import TopicPartition

    topics = () if witness is None else witness.topics
    every = ((topic.name or "", each) for topic in topics for each in topic.partitions)
    return {TopicPartition(name, each.partition_index): each for name, each in every}


def _counts(
    witness: MetadataResponse | None, moving: Mapping[TopicPartition, OngoingReassignment]
) -> dict[str, int | None]:
    """Topics and partitions, and how many lack something. As in Kafka, a replica that is only being added is not one
    that lacks."""
    if witness is None:
        return dict.fromkeys(("topics", "partitions", "without_leader", "under_replicated"))
    partitions = _partitions(witness)
    return {
        "topics": len(witness.topics),
        "partitions": len(partitions),
        "without_leader": sum(each.leader_id < 0 for each in partitions.values()),
        "under_replicated": sum(
            len(each.isr_nodes) < len(moving[tp].original if tp in moving else each.replica_nodes)
            for tp, each in partitions.items()
        ),
    }


def _reasons(witness: MetadataResponse | None) -> dict[str, list[dict[str, Any]] | None]:
    """Which live brokers do not serve their replicas of which partitions, and what holds deletions up."""
    if witness is None:
        return dict.fromkeys(("refused_replicas", "unfinished_deletions"))
    return {
        "refused_replicas": [
            {"topic": topic.name, "partition": part.partition_index, "broker": refused.broker_id, "why": refused.why}
            for topic in witness.topics
            for part in topic.partitions
            for refused in part.refused_replicas
        ],
        "unfinished_deletions": [{"topic": each.topic_name, "why": each.why} for each in witness.unfinished_deletions],
    }
