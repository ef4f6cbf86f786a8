"""Fast fail-over on real processes: a broker that only seems to be dead, one that is back at once, one that comes and
goes, and an alarm while ZooKeeper is out of reach. A verifying producer and a reader go on meanwhile.

After each blow: nothing acknowledged is lost, nothing stands twice, no client hears of an error, every broker is back
in sync, and the leader epoch in each partition's state znode has risen by no more than the blow may cost: by one for an
alarm or a death, by nothing for what is no alarm. Every election raises it by one, and so does the removal of a dead
broker from an in-sync set; preferred leaders would, too, so they are not elected here. Sessions last for a minute: none
of what happens is due to the end of one.

The same in memory, with a virtual clock, is in scenarios/test_fast_fail_over.py.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from kazoo.client import KazooClient

from integration.real_time import PATIENCE_S, off_loop, until
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.cluster_probe import ask_brokers
from strandline.client import TrioAdmin
from strandline.protocol.znodes import (
    BROKER_IDS_PATH,
    CONTROLLER_EPOCH_PATH,
    CONTROLLER_PATH,
    ControllerZnode,
    PartitionStateZnode,
)
from support.followed_load import FollowedLoad
from support.lasting import same_bytes
from support.proxies import BrokerProxies

TOPIC = "alarms"
REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
BROKERS = (1, 2, 3)
TERMS = {"a broker": 0, "the controller": 1}
"""Role → how many further terms of a controller it costs to replace who has it."""
SESSION_MS = 60_000
PROPERTIES = {"auto.leader.rebalance.enable": "false"}
REFUSED_S = 1.0
"""How long an address refuses connections, at least: three times what an alarm takes."""
SOON_GIVEN_UP = {"controller.socket.timeout.ms": "800"}
"""For how long a broker waits for an answer of another one that it watches."""
UNANSWERED_S = 4.0
"""How long a broker gives no answer: longer than three attempts to reach it, and far from the end of a session."""
HELD_S = 3.0
"""How long ZooKeeper is out of reach: ten times what an alarm takes, and far from the end of a session."""
LONGER_THAN_A_START_MS = 60_000


class Znodes:
    """What ZooKeeper has, asked past all proxies. Its methods block."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._client = KazooClient(hosts=cluster.zookeeper.address, timeout=60)
        self._client.start(timeout=PATIENCE_S)

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def states(self) -> dict[int, PartitionStateZnode]:
        paths = {partition: PartitionStateZnode.path(TOPIC, partition) for partition in REPLICAS}
        return {partition: PartitionStateZnode.decode(path, self._get(path)) for partition, path in paths.items()}

    def epochs(self) -> dict[int, int]:
        """Leader epochs, by partition."""
        return {partition: state.leader_epoch for partition, state in self.states().items()}

    def are_whole(self) -> bool:
        return all(state.leader in BROKERS and sorted(state.isr) == list(BROKERS) for state in self.states().values())

    def lead_without(self, broker_id: int) -> bool:
        """Every partition is led, and none by that broker, nor is it the controller."""
        states = self.states().values()
        return all(state.leader not in (-1, broker_id) for state in states) and self.controller() not in (-1, broker_id)

    def controller(self) -> int:
        """−1: none."""
        if self._client.exists(CONTROLLER_PATH) is None:
            return -1
        return ControllerZnode.decode(CONTROLLER_PATH, self._get(CONTROLLER_PATH)).broker_id

    def controllers(self) -> int:
        """How many terms there have been."""
        return int(self._get(CONTROLLER_EPOCH_PATH))

    def lives(self) -> dict[int, int]:
        """Which registration each broker has: broker id → broker epoch."""
        return {broker_id: self._client.exists(f"{BROKER_IDS_PATH}/{broker_id}").czxid for broker_id in BROKERS}

    def _get(self, path: str) -> bytes:
        return self._client.get(path)[0]


@dataclass
class Site:
    """A cluster under load."""

    cluster: EmbeddedCluster
    load: FollowedLoad
    znodes: Znodes
    after: dict[int, int] = field(default_factory=dict)
    """The leader epoch of each partition after the last blow."""

    async def victim(self, role: str) -> int:
        controller = await off_loop(self.znodes.controller)
        return controller if role == "the controller" else next(each for each in BROKERS if each != controller)

    @asynccontextmanager
    async def blow(self, *, costs: int, controllers: int | None = None) -> AsyncIterator[None]:
        """The body strikes, and undoes it. costs: elections of each partition at most. controllers: how many further
        terms there are; any number where that is not said."""
        epochs, terms = await off_loop(self.znodes.epochs), await off_loop(self.znodes.controllers)
        yield
        with trio.fail_after(PATIENCE_S):
            await self.load.until_acks_flow()
        await until(self.znodes.are_whole, "every broker back in sync")
        self.after = await off_loop(self.znodes.epochs)
        risen = {partition: self.after[partition] - before for partition, before in epochs.items()}
        assert max(risen.values()) <= costs, f"leader epochs rose by {risen}"
        if controllers is not None:
            assert await off_loop(self.znodes.controllers) - terms == controllers

    def suspicions(self) -> int:
        """How often a controller took a broker for dead that was registered."""
        logs = [path for each in BROKERS for path in self.cluster.broker_folder(each).glob("controller.log*")]
        return sum(path.read_text().count("broker suspected") for path in logs)

    async def kill(self, broker_id: int) -> None:
        await off_loop(self.cluster.kill_broker, broker_id)

    async def start(self, broker_id: int) -> None:
        await off_loop(self.cluster.start_broker, broker_id, timeout_s=PATIENCE_S)


@asynccontextmanager
async def under_load(cluster: EmbeddedCluster) -> AsyncIterator[Site]:
    """The topic, producer and reader, and at the end the proof. The cluster is stopped then."""
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, assignments=REPLICAS, configs={"min.insync.replicas": "2"})
    site = Site(cluster, FollowedLoad(cluster.bootstrap_servers, TOPIC, len(REPLICAS)), await off_loop(Znodes, cluster))
    await until(site.znodes.are_whole, "every partition led and whole")
    async with site.load.running():
        with trio.fail_after(PATIENCE_S):
            await site.load.until_acks_flow()
        yield site
        last = await off_loop(site.znodes.epochs)
    assert last == site.after, "an election came late"
    assert not site.load.writer.errors
    await site.load.check_kept()
    await off_loop(site.znodes.close)
    await off_loop(cluster.stop)
    for partition in REPLICAS:
        name = f"{TOPIC}-{partition}"
        same_bytes(name, {each: log_bytes(cluster, each, name) for each in BROKERS})


def log_bytes(cluster: EmbeddedCluster, broker_id: int, name: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((cluster.log_dir(broker_id) / name).glob("*.log")))


Build = Callable[..., EmbeddedCluster]


@pytest.fixture
def plain(new_cluster: Build) -> EmbeddedCluster:
    """Not started."""
    return new_cluster(3, session_timeout_ms=SESSION_MS, properties=PROPERTIES)


@pytest.fixture
def proxies(plain: EmbeddedCluster) -> Iterator[BrokerProxies]:
    """Before the brokers of that cluster, from its start on."""
    made = BrokerProxies(plain)
    yield made
    plain.stop(timeout_s=10)
    made.close()


# --- It only seems to be dead --------------------------------------------------------------------------------------


async def test_who_refuses_connections_for_a_second_is_replaced_once_and_taken_back(
    plain: EmbeddedCluster, proxies: BrokerProxies
) -> None:
    """Its listener is closed, with all of its connections, and bound again."""
    await off_loop(plain.start)
    async with under_load(plain) as site:
        lives = await off_loop(site.znodes.lives)
        for role in TERMS:
            victim = await site.victim(role)
            async with site.blow(costs=1, controllers=TERMS[role]):
                began_s = trio.current_time()
                proxies.before[victim].refuse()
                await until(lambda gone=victim: site.znodes.lead_without(gone), f"{role} is replaced")
                await trio.sleep_until(began_s + REFUSED_S)
                proxies.before[victim].let_through()
        assert await off_loop(site.znodes.lives) == lives, "no session has ended"


async def test_a_full_accept_queue_is_no_alarm(plain: EmbeddedCluster, proxies: BrokerProxies) -> None:
    """Nobody accepts, connections are not answered, and none is refused."""
    plain.properties.update(SOON_GIVEN_UP)
    await off_loop(plain.start)
    async with under_load(plain) as site:
        for role in TERMS:
            victim = await site.victim(role)
            async with site.blow(costs=0, controllers=0):
                await off_loop(proxies.before[victim].fill_queue)
                await trio.sleep(UNANSWERED_S)
                proxies.before[victim].let_through()
        assert site.suspicions() == 0


async def test_a_pause_that_is_shorter_than_a_session_is_no_alarm(
    plain: EmbeddedCluster, proxies: BrokerProxies
) -> None:
    """Its connections break, too, so that it is asked for new ones: they are made, and nothing is answered."""
    plain.properties.update(SOON_GIVEN_UP)
    await off_loop(plain.start)
    async with under_load(plain) as site:
        for role in TERMS:
            victim = await site.victim(role)
            async with site.blow(costs=0, controllers=0):
                await off_loop(plain.pause_broker, victim)
                proxies.before[victim].drop_connections()
                await trio.sleep(UNANSWERED_S)
                plain.resume_broker(victim)
        assert site.suspicions() == 0


# --- It dies, and is back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_noticed_late", [False, True], ids=["while it is missed", "before it is missed"])
async def test_a_broker_that_is_killed_and_started_at_once_costs_each_partition_one_election(
    is_noticed_late: bool, plain: EmbeddedCluster
) -> None:
    """It is started as soon as it is gone. By itself that takes longer than the 0.3 s of an alarm."""
    if is_noticed_late:
        plain.properties["failure.detection.refused.ms"] = str(LONGER_THAN_A_START_MS)
    await off_loop(plain.start)
    async with under_load(plain) as site:
        for role in TERMS:
            victim = await site.victim(role)
            async with site.blow(costs=1):
                await site.kill(victim)
                await site.start(victim)
        if is_noticed_late:
            assert site.suspicions() == 0


async def test_a_broker_that_flaps_costs_each_partition_one_election_for_each_time_it_dies(
    plain: EmbeddedCluster,
) -> None:
    await off_loop(plain.start)
    async with under_load(plain) as site:
        victim, deaths = await site.victim("a broker"), 4
        async with site.blow(costs=deaths, controllers=0):
            for _ in range(deaths):
                await site.kill(victim)
                await site.start(victim)


# --- ZooKeeper is out of reach meanwhile ---------------------------------------------------------------------------


@pytest.mark.parametrize("role", TERMS)
async def test_without_zookeeper_an_alarm_changes_nothing_until_it_is_back(role: str, plain: EmbeddedCluster) -> None:
    """Its process stands still."""
    await off_loop(plain.start)
    async with under_load(plain) as site:
        victim = await site.victim(role)
        lives = await off_loop(site.znodes.lives)
        async with site.blow(costs=1, controllers=TERMS[role]):
            states = await off_loop(site.znodes.states)
            await until(lambda: know(plain, victim, states), "all brokers know who leads")
            await off_loop(plain.zookeeper.process.pause)
            await site.kill(victim)
            await trio.sleep(HELD_S)
            assert await off_loop(know, plain, victim, states), "brokers were told what ZooKeeper does not have"
            plain.zookeeper.process.signal(signal.SIGCONT)
            await until(lambda: site.znodes.lead_without(victim), "it is replaced when ZooKeeper is back")
            assert await off_loop(site.znodes.lives) == lives, "no session has ended"
            await site.start(victim)


async def test_a_controller_that_alone_is_cut_off_from_zookeeper_changes_nothing_by_an_alarm(
    plain: EmbeddedCluster, proxies: BrokerProxies
) -> None:
    await off_loop(plain.start)
    async with under_load(plain) as site:
        controller, victim = await site.victim("the controller"), await site.victim("a broker")
        lives = await off_loop(site.znodes.lives)
        async with site.blow(costs=1, controllers=0):
            states = await off_loop(site.znodes.states)
            await until(lambda: know(plain, victim, states), "all brokers know who leads")
            proxies.to_zookeeper[controller].silence()
            await site.kill(victim)
            proxies.before[victim].refuse()
            await trio.sleep(HELD_S)
            assert await off_loop(site.znodes.states) == states
            assert await off_loop(know, plain, victim, states), "brokers were told what ZooKeeper does not have"
            proxies.to_zookeeper[controller].let_through()
            await until(lambda: site.znodes.lead_without(victim), "it is replaced when ZooKeeper is reached again")
            assert await off_loop(site.znodes.lives) == lives, "no session has ended"
            proxies.before[victim].let_through()
            await site.start(victim)


def know(cluster: EmbeddedCluster, without: int, states: Mapping[int, PartitionStateZnode]) -> bool:
    """Whether each other broker says of the topic what these states do."""
    others = {each: cluster.address(each) for each in BROKERS if each != without}
    led = {partition: (state.leader, state.leader_epoch) for partition, state in states.items()}
    answers = ask_brokers(others, [TOPIC], PATIENCE_S * 1000)
    return answers.keys() == others.keys() and all(
        {each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions} == led
        for answer in answers.values()
        for topic in answer.topics
    )
