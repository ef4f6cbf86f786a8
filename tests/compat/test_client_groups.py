"""Clients in groups, other people's and ours: members share the partitions, and one that is killed is missed by nobody.

Three members of one client, or some of different ones, read a topic of 6 partitions that is written all the time. One
is killed (SIGKILL). Every record is read; what had been committed is not read again; those who are left share all
partitions, and there is no lag.

Most of that is waiting for sessions to end: the trials go on side by side, some at a time, against one cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from compat.group_trials import PARTITIONS, lose_one
from compat.other_clients import CLIENTS, OURS_BY_ITSELF
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.sync import Admin

AT_A_TIME = 7
MEMBERS = 3
ALONE = {name: [client] * MEMBERS for name, client in CLIENTS.items()}
ALONE["strandline"][-1] = OURS_BY_ITSELF
MIXED = ("strandline", "confluent-kafka", "aiokafka", "kafka-python", "franz-go", "verifiable-4")
"""KafkaJS has one of its own under the name of the others'."""
ASSIGNORS = ("range", "roundrobin")


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future]]:
    """Of all trials that were selected, by the name of the test: under way, or waiting for their turn."""
    folder = tmp_path_factory.mktemp("members")
    # Members join as fast as a machine starts their processes; nobody has to wait for the last one.
    properties = {"group.initial.rebalance.delay.ms": "500"}
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), 3, properties=properties)
    pool = ThreadPoolExecutor(AT_A_TIME)
    try:
        cluster.start()
        futures: dict[str, Future] = {}
        with Admin(cluster.bootstrap_servers) as admin:
            for item in request.session.items:
                if not isinstance(item, pytest.Function) or item.module is not request.module:
                    continue
                topic = f"read-by-{len(futures)}"
                admin.create_topic(topic, PARTITIONS, 3, {"retention.ms": "-1"})
                chosen = item.callspec.params
                clients = ALONE.get(chosen.get("client"), [CLIENTS[name] for name in MIXED])
                futures[item.name] = pool.submit(
                    lose_one, cluster.bootstrap_servers, topic, clients, folder, chosen.get("assignor")
                )
        yield futures
    finally:
        pool.shutdown(cancel_futures=True)
        cluster.stop(timeout_s=10)


@pytest.mark.parametrize("client", ALONE)
def test_a_group_of_one_client_goes_on_when_a_member_is_killed(
    outcomes: dict[str, Future], client: str, request: pytest.FixtureRequest
) -> None:
    outcomes[request.node.name].result()


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_of_different_clients_share_partitions_and_go_on_when_one_is_killed(
    outcomes: dict[str, Future], assignor: str, request: pytest.FixtureRequest
) -> None:
    outcomes[request.node.name].result()
