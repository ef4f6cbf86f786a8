"""What a client knows of the cluster: brokers, topics, leaders. A snapshot, swapped whole with each answer.

Rules: the leader epoch of a partition never goes back within one topic id, whatever a lagging broker says (KAFKA-4443,
invariant 37). Metadata travels on a connection of its own, so that it never waits behind a long poll. When an answer to
an urgent question brings nothing new, the next one goes to another broker: a broker that is cut off keeps believing in
an old leader.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

import trio

from strandline.client.bootstrap import Bootstrap, Reaching, unreachable
from strandline.client.connection import Connection
from strandline.client.errors import (
    ClientError,
    InvalidTopic,
    LeaderNotAvailable,
    UnknownTopic,
    WrongBroker,
    error_for,
)
from strandline.client.request_bounds import in_parts
from strandline.client.settings import ClientSettings, parse_addresses
from strandline.client.signals import News
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import MetadataRequest, MetadataResponse, MetadataTopic
from strandline.protocol.topic_name import InvalidTopicName, check_topic_name
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_TOPIC, NO_TOPIC_ID, TopicId, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.network import Address

FIRST_ATTEMPT_TIMEOUT_MS = 1_000
"""How long one broker may take to answer before the next is asked; doubles with each round up to request_timeout_ms.
A stopped process (SIGSTOP) accepts connections and never answers, and whoever waits for what it led wants to hear of
the next leader."""

SILENT_AFTER_S = 3.0
"""An answer that is so late may never come, though the connection stands (a stopped process, a cut network): producers
and consumers then look whether another broker has taken over, and the admin client asks another one beside it; none
waits for `request_timeout_ms`."""

AFTER_NEWS_MS = 10
"""Pause after an answer that brought something new: at once would let a lying broker keep this client busy."""

STALE_ANSWERS_PER_BROKER = 3
"""After so many urgent questions in a row that brought nothing new another broker is asked."""

QUICK_STALE_ANSWERS = 200
"""After so many the back-off grows. At 100 ms that is as long as a dead broker's session may last, when another takes
over and every moment counts; what lasts longer may last for days."""

LOOK_AGAIN_MS, LOOK_AGAIN_MAX_MS = 100.0, 3_000.0
"""Pause before a look for what may have become better; doubles with each answer that brings nothing new. A partition
may be without a leader for days, and a thousand producers may see it: ten questions a second of each are too many."""

MOST_REFUSALS = 3
"""So many replicas that are refused an error names with their reasons."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as last heard; `leader` −1: none. `offline_replicas`: whose brokers do not live.
    `refused_replicas`: broker, which lives and does not serve its replica → why, and what helps."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error_code: int = 0
    refused_replicas: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionView]
    error_code: int = 0
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class BrokerView:
    broker_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything at one moment. `brokers` are those that live, by their advertised address."""

    cluster_id: str = ""
    controller_id: int = NO_BROKER
    brokers: Mapping[int, BrokerView] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None

    def no_leader(self, topic_partition: TopicPartition) -> LeaderNotAvailable:
        """Why nobody can be asked, as far as brokers have said."""
        known = self.partition(topic_partition)
        if known is None:
            text = f"no broker has told of partition {topic_partition} yet"
            return LeaderNotAvailable(ErrorCode.LEADER_NOT_AVAILABLE, text)
        text = f"partition {topic_partition} has no leader"
        if known.offline_replicas:
            text += f" (of its replicas {', '.join(map(str, known.replicas))} gone: "
            text += f"{', '.join(map(str, known.offline_replicas))})"
        if self.controller_id == NO_BROKER:
            text += ", and no controller is known that could elect one"
        for broker_id, why in islice(known.refused_replicas.items(), MOST_REFUSALS):
            text += f"; broker {broker_id} does not serve its replica: {why}"
        return LeaderNotAvailable(ErrorCode.LEADER_NOT_AVAILABLE, text)

    def merged(self, answer: MetadataResponse, *, has_all_topics: bool = False) -> ClusterView:
        """This view after an answer; topics that were not asked about stay as they are."""
        topics = {} if has_all_topics else dict(self.topics)
        for topic in answer.topics:
            if topic.name is None:
                continue  # nobody here asks by ids
            topics[topic.name] = _merged_topic(topic.name, self.topics.get(topic.name), topic)
        brokers = {
            item.node_id: BrokerView(item.node_id, Address(item.host, item.port), item.rack) for item in answer.brokers
        }
        return ClusterView(
            answer.cluster_id or self.cluster_id,
            answer.controller_id,
            MappingProxyType(brokers),
            MappingProxyType(topics),
        )

    def with_leader(self, topic_partition: TopicPartition, leader: int, leader_epoch: int) -> ClusterView:
        """This view after a broker's hint who leads now; an older hint changes nothing."""
        known = self.partition(topic_partition)
        if known is None or leader_epoch <= known.leader_epoch or leader not in self.brokers:
            return self
        topic = self.topics[topic_partition.topic]
        partitions = dict(topic.partitions)
        partitions[topic_partition.partition] = replace(known, leader=leader, leader_epoch=leader_epoch, error_code=0)
        topics = dict(self.topics)
        topics[topic.name] = replace(topic, partitions=MappingProxyType(partitions))
        return replace(self, topics=MappingProxyType(topics))


def _merged_topic(name: str, known: TopicView | None, answer: MetadataTopic) -> TopicView:
    partitions = {
        item.partition_index: PartitionView(
            item.leader_id,
            item.leader_epoch,
            tuple(item.replica_nodes),
            tuple(item.isr_nodes),
            tuple(item.offline_replicas),
            item.error_code,
            MappingProxyType({refused.broker_id: refused.why for refused in item.refused_replicas}),
        )
        for item in answer.partitions
    }
    # Two ids that both are known and differ: the topic was made anew and its epochs count from the start.
    if known is not None and (NO_TOPIC_ID in (known.topic_id, answer.topic_id) or known.topic_id == answer.topic_id):
        only_trouble = answer.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for index, before in known.partitions.items():
            now = partitions.get(index)
            if only_trouble if now is None else NO_EPOCH < now.leader_epoch < before.leader_epoch:
                partitions[index] = before
    topic_id = answer.topic_id if answer.topic_id != NO_TOPIC_ID or known is None else known.topic_id
    return TopicView(name, topic_id, MappingProxyType(partitions), answer.error_code, answer.is_internal)


class Metadata:
    """Keeps a `ClusterView` fresh. `run` is the task that asks; everything else only marks what is wanted."""

    def __init__(
        self,
        settings: ClientSettings,
        environment: ClientEnvironment,
        *,
        on_change: Callable[[], None] = lambda: None,
        allow_auto_topic_creation: bool = False,
    ) -> None:
        self.view = ClusterView()
        self.updated_at: float | None = None
        """When a broker told it last; None: none has, or `run` has ended."""
        self.last_error: Exception | None = None
        self._settings = settings
        self._environment = environment
        self._on_change = on_change
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._addresses = parse_addresses(settings.bootstrap_servers)
        self.bootstrap = Bootstrap(self._addresses, settings.bootstrap_timeout_ms)
        self._topics: dict[str, None] = {}
        self._expected: dict[str, None] = {}
        self._awaited: Counter[str] = Counter()
        """How many wait for each topic. Only for one of these a broker is asked to create it: a refresh must not bring
        back what was deleted."""
        self._followed: dict[str, None] = {}
        self.held_topics: Callable[[], Iterable[str]] = tuple
        """Something waits for these, whoever called for it: they are asked about, too."""
        self._follows_everything = False
        self._connection: Connection | None = None
        self._failed_last: set[Address] = set()
        """Those of whom nothing came when they were asked last."""
        self._wanted = trio.Event()
        self._answered = News()
        self._urgent = False
        self._look_again_at = 0.0

    def request_update(self) -> None:
        """Ask again soon: something turned out to be out of date."""
        self._urgent = True
        self._wanted.set()

    def look_again(self) -> None:
        """Ask again, by and by the less often: what is known may well be true, and can be lived with, but better may
        come. To be called again and again for as long as that is so."""
        if trio.current_time() >= self._look_again_at:
            self._wanted.set()

    def follow(self, names: Iterable[str], *, everything: bool = False) -> None:
        """Ask about these topics with every refresh, in place of those of the last call, or about all there are."""
        names = dict.fromkeys(sorted(names))
        if (names, everything) != (self._followed, self._follows_everything):
            self._followed, self._follows_everything = names, everything
            self.request_update()

    def hint_leader(self, topic_partition: TopicPartition, leader: int, leader_epoch: int) -> None:
        """A broker said who leads now, in place of an answer. What is older than what is known changes nothing."""
        self.view = self.view.with_leader(topic_partition, leader, leader_epoch)

    def expect(self, names: Iterable[str]) -> None:
        """Ask about these topics, too, with every refresh, whoever has waited for one in vain. InvalidTopic."""
        for name in names:
            _check_name(name)
            self._expected[name] = None

    def reaching(self) -> Reaching:
        """For one call that waits for what a cluster has, which may not have been reached yet."""
        return Reaching(self.bootstrap, trio.current_time())

    async def topic(self, name: str, *, timeout_ms: float, setting: str, since: float | None = None) -> TopicView:
        """The topic, once the cluster knows it. UnknownTopic, NoBrokerReachable or what else was the last cause after
        `timeout_ms` (the value of `setting`), from `since` (now) on; NoBrokerReachable once `bootstrap_timeout_ms` is
        over without any answer; at once where waiting cannot help, InvalidTopic before anything is asked: a name that
        cannot even be encoded would spoil the questions about all other topics, too."""
        _check_name(name)
        deadline = (trio.current_time() if since is None else since) + timeout_ms / 1000
        while True:
            self._topics[name] = None
            topic = self.view.topics.get(name)
            if topic is not None and topic.partitions and not topic.error_code:
                return topic
            if topic is not None and topic.error_code:
                error = error_for(topic.error_code, f"topic {name!r}")
                if not error.retriable:
                    raise error
            self._awaited[name] += 1
            try:
                if self.bootstrap.is_over(trio.current_time()) or not await self._wait_for_attempt(deadline):
                    break
            finally:
                self._awaited[name] -= 1
        if topic is None or not topic.partitions:
            self._topics.pop(name, None)  # not asked for with every refresh from now on
        self._raise_if_out_of_reach()
        if self.last_error is not None:
            raise self.last_error
        if topic is None or not topic.error_code:
            raise UnknownTopic(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name!r}: nothing known of it within {timeout_ms:g} ms ({setting})",
            )
        raise error_for(
            topic.error_code, f"topic {name!r}", detail=f"still after {timeout_ms:g} ms ({setting}); does it exist?"
        )

    async def wait_for_answer(self, deadline: float) -> bool:
        """Ask (again) and wait for an attempt to end, well or badly. False: the deadline came first. NoBrokerReachable
        where none has ever answered, once `bootstrap_timeout_ms` is over."""
        in_time = await self._wait_for_attempt(deadline)
        self._raise_if_out_of_reach()
        return in_time

    async def _wait_for_attempt(self, deadline: float) -> bool:
        """Whether one has ended before the deadline, and before the time for a first answer is over."""
        self.request_update()
        now = trio.current_time()
        self.bootstrap.begin(now)
        over = self.bootstrap.ends_at(now)
        return await self._answered.wait_until(deadline if now >= over else min(deadline, over))

    def _raise_if_out_of_reach(self) -> None:
        if self.bootstrap.is_over(trio.current_time()):
            raise self.bootstrap.error()

    async def run(self) -> None:
        """Ask when wanted and when the view is too old; after a failure or in a hurry no more often than the back-off
        allows. Runs until cancelled."""
        failures = stale = unchanged = 0
        try:
            while True:
                with trio.move_on_after(self._settings.metadata_max_age_ms / 1000):
                    await self._wanted.wait()
                self._wanted = trio.Event()
                urgent, self._urgent = self._urgent, False
                self._look_again_at = math.inf  # while the answer is on its way
                before = self.view
                self.bootstrap.begin(trio.current_time())
                try:
                    await self._refresh(failures)
                except ClientError as error:
                    self.last_error = error
                    self.bootstrap.round_failed()
                    self._wanted.set()
                else:
                    self.last_error = None
                nothing_new = self.view.topics == before.topics and self.view.brokers == before.brokers
                failures = failures + 1 if self.last_error else 0
                stale = stale + 1 if urgent and nothing_new else 0
                unchanged = unchanged + 1 if nothing_new else 0
                self._look_again_at = trio.current_time() + self._look_again_ms(unchanged) / 1000
                if stale % STALE_ANSWERS_PER_BROKER == STALE_ANSWERS_PER_BROKER - 1:
                    self._disconnect()
                self._answered.tell()
                self._on_change()
                useful = not failures and not nothing_new
                wait_ms = backoff_ms(self._settings, max(1, failures, stale - QUICK_STALE_ANSWERS), self._environment)
                await trio.sleep((min(wait_ms, AFTER_NEWS_MS) if useful else wait_ms) / 1000)
        finally:
            self.updated_at = None
            self._disconnect()

    def _look_again_ms(self, unchanged: int) -> float:
        wait_ms = min(LOOK_AGAIN_MS * 2.0 ** min(unchanged, 20), LOOK_AGAIN_MAX_MS)
        return _with_jitter(wait_ms, self._environment)

    async def _refresh(self, failures: int) -> None:
        """One answer from any broker. NoBrokerReachable when none gives one."""
        limit_ms = min(self._settings.request_timeout_ms, FIRST_ATTEMPT_TIMEOUT_MS * 2 ** min(failures, 10))
        limit_ms = self.bootstrap.attempt_ms(limit_ms)
        causes: dict[Address, Exception | None] = {}
        for broker_id, address in self._candidates():
            try:
                await self._ask(broker_id, address, limit_ms)
                self._failed_last.discard(address)
                return
            except ClientError as error:
                self._disconnect()
                self._failed_last.add(address)
                self.bootstrap.failed(address, error)
                causes[address] = error
        raise unreachable("no broker answers", causes)

    def _candidates(self) -> list[tuple[int, Address]]:
        """Whom to ask, in order: the open connection, known brokers, bootstrap servers; each address once, and last
        those of whom nothing came the last time."""
        known = [(item.broker_id, item.address) for item in self.view.brokers.values()]
        bootstrap = [(NO_BROKER, address) for address in self._addresses]
        self._environment.random.shuffle(known)
        self._environment.random.shuffle(bootstrap)
        first = [(self._connection.broker_id, self._connection.address)] if self._connection else []
        by_address: dict[Address, int] = {}
        for broker_id, address in first + known + bootstrap:
            by_address.setdefault(address, broker_id)
        self._failed_last &= by_address.keys()
        in_order = sorted(by_address, key=lambda address: address in self._failed_last)
        return [(by_address[address], address) for address in in_order]

    async def _ask(self, broker_id: int, address: Address, limit_ms: float) -> None:
        settings = self._settings
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(
                self._environment.network,
                address,
                client_id=settings.client_id,
                timeout_ms=settings.request_timeout_ms,
                connect_timeout_ms=min(limit_ms, settings.socket_connection_setup_timeout_ms),
                max_frame_bytes=settings.max_frame_bytes,
                broker_id=broker_id,
            )
            self.bootstrap.answered()
        for names, may_create in self._questions():
            request = MetadataRequest(names, may_create)
            answer = await self._connection.call(request, MetadataResponse, timeout_ms=limit_ms)
            raise_refusal(request, answer, self._connection.name)
            self._take(answer, self._connection, has_all_topics=names is None)

    def _questions(self) -> list[tuple[list[str] | None, bool]]:
        """(topics, may they be created) of each request of a refresh."""
        if self._follows_everything:
            return [(None, False)]
        named = {**self._topics, **self._expected, **self._followed, **dict.fromkeys(self.held_topics())}
        self._awaited = +self._awaited  # without those that nobody waits for any more
        to_create = [name for name in named if name in self._awaited] if self._allow_auto_topic_creation else []
        known = [name for name in named if name not in to_create]
        questions: list[tuple[list[str] | None, bool]] = [(part, False) for part in in_parts(known)]
        return questions + [(part, True) for part in in_parts(to_create)] or [([], False)]

    def _take(self, answer: MetadataResponse, connection: Connection, *, has_all_topics: bool) -> None:
        known_id = self.view.cluster_id
        if known_id and answer.cluster_id and answer.cluster_id != known_id:
            raise WrongBroker(
                f"{connection.name} belongs to cluster {answer.cluster_id!r}, not to {known_id!r}; check "
                f"bootstrap_servers"
            )
        self.view = self.view.merged(answer, has_all_topics=has_all_topics)
        self.updated_at = trio.current_time()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check_name(name: str) -> None:
    """InvalidTopic."""
    try:
        check_topic_name(name)
    except InvalidTopicName as refusal:
        raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, str(refusal)) from None


def raise_refusal(request: MetadataRequest, answer: MetadataResponse, who: str) -> None:
    """The error of an answer that refuses the question as a whole: it knows no brokers and must not be believed."""
    for topic in answer.topics:
        if topic.name == NO_TOPIC and topic.error_code and NO_TOPIC not in (request.topics or ()):
            raise error_for(topic.error_code, "asking for the cluster's layout", who, answer.error_message)


def backoff_ms(settings: ClientSettings, attempt: int, environment: ClientEnvironment) -> float:
    """How long to wait after the `attempt`-th failure in a row (from 1): doubling, with ±20 % jitter (KIP-580)."""
    wait_ms = min(settings.retry_backoff_ms * 2.0 ** min(attempt - 1, 20), settings.retry_backoff_max_ms)
    return _with_jitter(wait_ms, environment)


def _with_jitter(wait_ms: float, environment: ClientEnvironment) -> float:
    """So that clients that began together do not go on asking together."""
    return wait_ms * environment.random.uniform(0.8, 1.2)
