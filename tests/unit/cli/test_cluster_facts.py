"""What `strandline doctor --cluster` looks at: an answer that cannot be used hides no other one, and why is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.cli.cluster_facts import ClusterFacts, Skew, cluster_facts
from strandline.client.errors import ClientError
from strandline.client.metadata import PartitionView
from strandline.protocol.messages import ConfigResource
from strandline.runtime import http_client
from strandline.runtime.network import Address

REFUSED = ClientError("TOPIC_AUTHORIZATION_FAILED: it may not be read")

PORTS = {broker_id: Address("127.0.0.1", 1000 + broker_id) for broker_id in (1, 2)}


class Site:
    """Brokers 1 and 2, whose admin ports tell `time_ms`, and topic t. `refusing`: what has no configuration to tell."""

    def __init__(self, shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time_ms: dict[int, object] = {1: shell.session.now_ms(), 2: shell.session.now_ms()}
        self.refusing: tuple[str, ...] = ()
        self._shell, self._monkeypatch = shell, monkeypatch
        shell.cluster.moves.racks = dict.fromkeys((1, 2))
        shell.cluster.add_topic("t", {0: PartitionView(1, 1, (1, 2), (1, 2))})
        monkeypatch.setattr(http_client, "get", self._get)

    def facts(self) -> ClusterFacts:
        session = self._shell.session
        with session.admin("h:1") as admin, session.consumer("h:1") as consumer:
            of_one, of_topics = admin.describe_configs, admin.describe_topic_configs

            def describe(kind: ConfigResource, name: str, *more: Any, **options: Any) -> Any:
                if f"broker {name}" in self.refusing:
                    raise REFUSED
                return of_one(kind, name, *more, **options)

            def describe_topics(names: list[str], *more: Any, **options: Any) -> Any:
                told = of_topics(names, *more, **options)
                return {name: REFUSED if f"topic {name}" in self.refusing else each for name, each in told.items()}

            self._monkeypatch.setattr(admin, "describe_configs", describe)
            self._monkeypatch.setattr(admin, "describe_topic_configs", describe_topics)
            return cluster_facts(session, admin, consumer, PORTS)

    def _get(self, address: Address, *_: object) -> tuple[int, bytes]:
        broker_id = address.port - 1000
        told = {"broker_id": broker_id, "cluster_id": "id", "time_ms": self.time_ms[broker_id]}
        return 200, json.dumps(told).encode()


@pytest.fixture
def site(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(shell, monkeypatch)


@pytest.mark.parametrize("time_ms", [10**400, 10**18, -1, True, 1.5, "now", None], ids=lambda each: repr(each)[:6])
def test_a_time_that_is_none_leaves_a_clock_unknown(site: Site, time_ms: object) -> None:
    site.time_ms[2] = time_ms
    facts = site.facts()
    assert facts.skews == {1: Skew(0)} and facts.statuses.keys() == {1, 2}


def test_why_the_configuration_of_a_topic_is_not_known_is_kept(site: Site) -> None:
    site.refusing = ("topic t",)
    facts = site.facts()
    assert (facts.topic_configs, facts.topic_configs_untold) == ({}, {"t": str(REFUSED)})


def test_why_the_configuration_of_a_broker_is_not_known_is_kept(site: Site) -> None:
    site.refusing = ("broker 2",)
    facts = site.facts()
    assert (facts.broker_configs.keys(), facts.broker_configs_untold) == ({1}, {2: str(REFUSED)})
