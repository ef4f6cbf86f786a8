"""The admin client, trio-native: topics and the cluster.

    async with TrioAdmin("localhost:9092") as admin:
        await admin.create_topic("topic", num_partitions=6, replication_factor=3)

Rules: what changes the cluster goes to the controller and is tried again when that moved (NOT_CONTROLLER) or cannot be
reached; a request whose answer was lost is only repeated, and then "exists already" after a lost creation counts as
done. What any broker knows is asked of another one, too, where one is silent (`first_answer.py`). Every call ends
within its timeout with the last cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, Unpack

import trio

from strandline.client import metrics
from strandline.client.configurations import Ask, alter_configs, describe_configs
from strandline.client.errors import (
    AnsweredError,
    BrokerMisbehaved,
    CannotReachBroker,
    ClientError,
    NoBrokerReachable,
    RequestTimedOut,
    error_for,
)
from strandline.client.first_answer import FirstAnswers
from strandline.client.groups.administration import GroupAdministration
from strandline.client.links import Links
from strandline.client.lookup import BrokerCalls, is_retriable
from strandline.client.metadata import ClusterView, Metadata, TopicView, backoff_ms, raise_refusal
from strandline.client.options import AdminOptions
from strandline.client.producer_states import KnownProducers, describe_producers
from strandline.client.quotas import QuotaAdministration
from strandline.client.reassignments import ReplicaMoves
from strandline.client.record_deletion import delete_records
from strandline.client.replicas.reading import ReplicaReading
from strandline.client.request_bounds import in_parts
from strandline.client.service import Service
from strandline.client.settings import AdminSettings, from_mapping
from strandline.client.settings_help import shows_settings
from strandline.client.topic_changes import (
    CreatedTopic,
    NewTopic,
    creatable,
    created,
    deleted,
    deletion,
    raise_whole_refusal,
    told_apart,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    UNCLEAN,
    AlterClientQuotasRequest,
    ConfigResource,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsResourceResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    IncrementalAlterConfigsRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    ReplicaStanding,
    Request,
)
from strandline.protocol.types import NO_BROKER, TopicId, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment, production_client_environment

R = TypeVar("R", bound=Message)

_WAIT_SHARE = 0.9
"""So much of its time a deletion may be waited for by the controller: the answer, who holds it up, has to arrive."""
_CHANGES = (IncrementalAlterConfigsRequest, AlterClientQuotasRequest)
"""Any broker takes these, and they are no mere questions."""
_NOBODY_CONTROLS = "no broker acts as the controller now; is ZooKeeper reachable for the brokers?"


class RecoveredPartition(NamedTuple):
    """`leader`: who leads now, or would, −1: none of those who live says where its log ends."""

    partition: TopicPartition
    leader: int
    replicas: tuple[ReplicaStanding, ...]


@shows_settings(AdminSettings, AdminOptions)
class TrioAdmin(Service, GroupAdministration, ReplicaMoves, ReplicaReading, QuotaAdministration):
    """Topics, groups and the cluster, for trio programs. What it does with groups: `GroupAdministration`; with who
    holds and leads partitions: `ReplicaMoves`; with single replicas: `ReplicaReading`; with quotas:
    `QuotaAdministration`."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[AdminOptions],
    ) -> None:
        super().__init__()
        self.settings = from_mapping(AdminSettings, {"bootstrap_servers": bootstrap_servers, **settings})
        self._environment = environment or production_client_environment()
        self._metadata = Metadata(self.settings, self._environment)
        self._links = Links(self.settings, self._environment, self._metadata, lambda: None)
        self._calls = BrokerCalls(self._links)
        self._first_answers = FirstAnswers(self._environment.random)

    # --- Topics ---

    async def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> CreatedTopic:
        """Create one topic; returns when each partition has a leader. TopicAlreadyExists, InvalidTopic,
        InvalidTopicSettings or another AnsweredError; the last cause after `timeout_ms`."""
        topic = NewTopic(name, num_partitions, replication_factor, configs, assignments)
        result = (await self.create_topics([topic], validate_only=validate_only, timeout_ms=timeout_ms))[name]
        if isinstance(result, Exception):
            raise result
        return result

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> dict[str, CreatedTopic | AnsweredError]:
        """Create several; each has a result of its own. The last cause after `timeout_ms`."""
        left = {topic.name: topic for topic in topics}
        results: dict[str, CreatedTopic | AnsweredError] = {}
        call = _ControllerCall(self, timeout_ms)
        while left:
            request = CreateTopicsRequest(
                [creatable(topic) for topic in left.values()], call.controllers_ms(), validate_only
            )
            answer = await call.attempt(request, CreateTopicsResponse)
            if answer is None:
                continue
            for result in answer.topics:
                topic = left.get(result.name)
                raise_whole_refusal(result, left, "creating topics")
                if topic is None or call.must_repeat(result.error_code):
                    continue
                del left[result.name]
                results[result.name] = created(result, topic, may_have_been_us=call.outcome_was_lost)
            await call.before_repeating(bool(left), "creating topics")
        return results

    async def delete_topic(self, name: str, *, timeout_ms: float | None = None) -> None:
        """Delete one topic; returns when it is gone. UnknownTopic or another AnsweredError."""
        error = (await self.delete_topics([name], timeout_ms=timeout_ms))[name]
        if error is not None:
            raise error

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, AnsweredError | None]:
        """Delete several; None where it went well. The last cause after `timeout_ms`. First the controller tells their
        ids, and by these they are deleted, so an attempt that arrives late deletes no topic that was made anew
        (KIP-516)."""
        call = _ControllerCall(self, timeout_ms)
        ids, results = told_apart(await self._find_to_delete(list(dict.fromkeys(names)), call))
        left = [name for name, error in results.items() if error is None]
        begun: set[TopicId] = set()  # perhaps, by a controller that resigned: the next one goes on with it
        while left:
            request = deletion(left, ids, int(call.left_ms() * _WAIT_SHARE))
            answer = await call.attempt(request, DeleteTopicsResponse)
            if answer is None:
                continue
            for result in answer.responses:
                raise_whole_refusal(result, left, "deleting topics")
                name = ids.get(result.topic_id, result.name or "")
                if name not in left:
                    continue
                if call.must_repeat(result.error_code):
                    begun.add(result.topic_id)
                    continue
                may_have_been_us = call.outcome_was_lost or (result.topic_id in begun and result.topic_id in ids)
                left.remove(name)
                results[name] = deleted(result, name, may_have_been_us=may_have_been_us)
            await call.before_repeating(bool(left), "deleting topics")
        return results

    async def _find_to_delete(self, names: Sequence[str], call: _ControllerCall) -> dict[str, TopicId | AnsweredError]:
        """The id of each, or why it cannot be deleted. This does nothing, so it may arrive whenever it will."""
        found: dict[str, TopicId | AnsweredError] = {}
        while left := [name for name in names if name not in found]:
            answer = await call.attempt(DeleteTopicsRequest(left, validate_only=True), DeleteTopicsResponse)
            if answer is None:
                continue
            for result in answer.responses:
                raise_whole_refusal(result, left, "deleting topics")
                if result.name in left and not call.must_repeat(result.error_code):
                    error = deleted(result, result.name, may_have_been_us=False)
                    found[result.name] = result.topic_id if error is None else error
            await call.before_repeating(len(found) < len(names), "deleting topics")
        call.outcome_was_lost = False
        return found

    async def create_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Have a topic get more partitions, `count` in all; returns when each has a leader. assignments: the replicas
        of each new one. Keys that lead to a partition by their hash lead to another one from then on. AnsweredError:
        INVALID_PARTITIONS where it has as many or more."""
        call = _ControllerCall(self, timeout_ms)
        new = None if assignments is None else [CreatePartitionsAssignment(list(each)) for each in assignments]
        while True:
            topic = CreatePartitionsTopic(name, count, new)
            request = CreatePartitionsRequest([topic], call.controllers_ms(), validate_only)
            answer = await call.attempt(request, CreatePartitionsResponse)
            if answer is None:
                continue
            if len(answer.results) == 1 and not call.must_repeat(answer.results[0].error_code):
                [result] = answer.results
                if result.error_code == ErrorCode.INVALID_PARTITIONS and call.outcome_was_lost:
                    view = await self._ask_any([name], call.left_ms())
                    if name in view.topics and len(view.topics[name].partitions) == count:
                        return  # it may have been us
                if result.error_code:
                    what = f"adding partitions to topic {name!r}"
                    raise error_for(result.error_code, what, detail=result.error_message)
                return
            await call.before_repeating(True, "adding partitions")

    # --- Configurations ---

    async def describe_configs(
        self, kind: ConfigResource, name: str = "", keys: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> list[DescribeConfigsResourceResult]:
        """Each key, or these, of a topic, of a broker (by its id), or of what is set for all brokers (BROKER, ""): its
        value, and all places where one stands. UnknownTopic or another AnsweredError."""
        found = (await describe_configs(kind, [name], keys, self._asker(kind, name, timeout_ms)))[name]
        if isinstance(found, ClientError):
            raise found
        return found

    async def describe_topic_configs(
        self, names: Iterable[str], keys: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> dict[str, list[DescribeConfigsResourceResult] | ClientError]:
        """Of many topics at once: of each its keys, all or these, or why there are none (UnknownTopic)."""
        ask = self._asker(ConfigResource.TOPIC, "", timeout_ms)
        return await describe_configs(ConfigResource.TOPIC, names, keys, ask)

    async def alter_configs(
        self,
        kind: ConfigResource,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set keys of a topic, of a broker or of all brokers (BROKER, ""), or, where the value is None, have them no
        longer set; others stay. Brokers take it over at once. AnsweredError: INVALID_CONFIG names key and value."""
        await alter_configs(kind, name, changes, validate_only, self._asker(kind, name, timeout_ms))

    async def recover(
        self, partition: TopicPartition, *, accept_loss: bool = False, timeout_ms: float | None = None
    ) -> RecoveredPartition:
        """What each replica of a partition that nobody leads has, and who would lead. accept_loss: let the longest log
        of those who live lead, now; what only the others have is lost. ELECTION_NOT_NEEDED: somebody leads it.
        The last cause after `timeout_ms`."""
        call = _ControllerCall(self, timeout_ms)
        wanted = [ElectLeadersTopic(partition.topic, [partition.partition])]
        while True:
            request = ElectLeadersRequest(UNCLEAN, wanted, int(call.left_ms()), not accept_loss)
            answer = await call.attempt(request, ElectLeadersResponse)
            if answer is None:
                continue
            if answer.error_code and not call.must_repeat(answer.error_code):
                raise error_for(answer.error_code, "recovering a partition", detail=answer.error_message)
            results = [result for topic in answer.replica_election_results for result in topic.partition_result]
            if not answer.error_code and len(results) == 1:
                [result] = results
                if result.error_code:
                    what = f"recovering {partition}"
                    raise error_for(result.error_code, what, detail=result.error_message)
                return RecoveredPartition(partition, result.leader_id, tuple(result.replicas))
            await call.before_repeating(True, "recovering a partition")

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int | ClientError]:
        """Delete what lies before an offset in each partition; −1: everything that is committed when its leader is
        asked first.

        Returns when every live replica has done it, with the low watermark of each partition (the offset where its log
        begins now) or its error: OFFSET_OUT_OF_RANGE above the high watermark, POLICY_VIOLATION for a topic that is
        only compacted; after `timeout_ms` the last cause."""
        call = _ControllerCall(self, timeout_ms)

        async def describe(topics: Iterable[str]) -> ClusterView:
            return await self._ask_any(list(topics), call.left_ms())

        return await delete_records(offsets, call, describe)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        producer_ids: Iterable[int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> KnownProducers:
        """What each partition's leader knows of idempotent producers (of these ids, None: of all that were not idle for
        `producer.id.expiration.ms`), up to the end of its log, also beyond what is committed. A broker that leads no
        more, and has not heard so, tells what it knew. UnknownTopic, another AnsweredError or the last cause."""
        call = _ControllerCall(self, timeout_ms)

        async def describe(topics: Iterable[str]) -> ClusterView:
            return await self._ask_any(list(topics), call.left_ms())

        return await describe_producers(partitions, producer_ids, call, describe)

    async def list_topics(self, *, timeout_ms: float | None = None) -> list[str]:
        """Names of all topics, sorted. The last cause after `timeout_ms`."""
        return sorted(await self.describe_topics(timeout_ms=timeout_ms))

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicView]:
        """Topics with their partitions, leaders, replicas and in-sync replicas (None: all). UnknownTopic for a name
        that does not exist."""
        wanted = None if names is None else list(names)
        view = await self._ask_any(wanted, timeout_ms)
        for topic in view.topics.values():
            if topic.error_code and wanted is not None:
                raise error_for(topic.error_code, f"topic {topic.name!r}")
        return dict(view.topics)

    async def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterView:
        """Cluster id, controller and live brokers; no topics. The last cause after `timeout_ms`."""
        return await self._ask_any([], timeout_ms)

    def metrics(self) -> dict[str, float]:
        """Numbers about this client, under Kafka's names, as of now.

        Total: request-total (answered ones, without those for the cluster's layout). Now: connection-count,
        requests-in-flight, metadata-age (ms; −1: never heard, or closed). Of the last 30 to 60 s: request-latency-avg
        and request-latency-max (ms).
        """
        return metrics.of_calls(self._calls, self._metadata, self._now_s())

    # --- Tasks ---

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the cluster's layout until `close` or cancelled."""
        try:
            with self._serving():
                task_status.started()
                await self._metadata.run()
        finally:
            self.close()

    def close(self) -> None:
        """Idempotent."""
        self.stop()
        self._calls.close()

    # --- Parts ---

    def _attempts(self, timeout_ms: float | None) -> _ControllerCall:
        return _ControllerCall(self, timeout_ms)

    async def _ask_any(self, topics: list[str] | None, timeout_ms: float | None) -> ClusterView:
        """The cluster with these topics (None: all) as a broker sees it now, the controller unless it is silent."""
        call = _ControllerCall(self, timeout_ms)
        view = ClusterView()
        for names in [None] if topics is None else list(in_parts(topics)) or [[]]:
            view = view.merged(await self._ask_part(MetadataRequest(names), call))
        return view

    def _any_asker(self, timeout_ms: float | None) -> Ask:
        return self._asker(ConfigResource.TOPIC, "", timeout_ms)

    def _asker(self, kind: ConfigResource, name: str, timeout_ms: float | None) -> Ask:
        """To whom a question about a configuration goes: to the broker that it is about, else to any."""
        call = _ControllerCall(self, timeout_ms)

        async def ask(request: Request, answer: type[Message]) -> Message:
            if kind != ConfigResource.BROKER or not name:
                return (await call.ask_any(request, answer))[1]
            while True:
                found = await call.ask(int(name), request, answer)
                if found is not None:
                    return found
                await call.learn()

        return ask

    async def _ask_part(self, request: MetadataRequest, call: _ControllerCall) -> MetadataResponse:
        def knows(broker_id: int, found: MetadataResponse) -> bool:
            """A broker that was just started, and was told nothing yet, does not even know of itself: what it says of
            topics is no news of them."""
            raise_refusal(request, found, f"broker {broker_id}")
            return bool(found.brokers)

        return (await call.ask_any(request, MetadataResponse, knows))[1]


class _ControllerCall:
    """One call of the admin client: its deadline, its attempts, its last cause."""

    def __init__(self, admin: TrioAdmin, timeout_ms: float | None) -> None:
        admin._raise_if_closed()
        self._admin = admin
        self._limit_ms = admin.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = trio.current_time() + self._limit_ms / 1000
        self._attempts = 0
        self.last_error: Exception | None = None
        self.outcome_was_lost = False
        """An earlier attempt may have been carried out without our learning it."""

    def left_ms(self) -> float:
        return max(1.0, (self._deadline - trio.current_time()) * 1000)

    def controllers_ms(self) -> int:
        """How long the controller may take: what it knows then shall still arrive."""
        left_ms = self.left_ms()
        return int(left_ms - min(1000, left_ms / 10))

    def must_repeat(self, number: int) -> bool:
        """The asked broker could not do it, another one (or the same, later) can."""
        if number != ErrorCode.NOT_CONTROLLER:
            return False
        self.last_error = error_for(number, "asking the controller", detail=_NOBODY_CONTROLS)
        return True

    async def attempt(self, request: Request, answer: type[R]) -> R | None:
        """Ask the controller; None: try again. The last cause once the time is over."""
        view = self._admin._metadata.view
        if view.controller_id != NO_BROKER and (
            (result := await self.ask(view.controller_id, request, answer)) is not None
        ):
            return result
        if view.controller_id == NO_BROKER and view.brokers:
            self.last_error = error_for(ErrorCode.NOT_CONTROLLER, "looking for the controller", detail=_NOBODY_CONTROLS)
        await self.learn()
        return None

    async def ask(self, broker_id: int, request: Request, answer: type[R]) -> R | None:
        """Ask that broker; None if that failed in a way that another attempt may mend."""
        try:
            with trio.fail_after(self.left_ms() / 1000):
                found = await self._admin._calls.call(broker_id, request, answer)
            self._admin._first_answers.has_answered(broker_id)
            return found
        except trio.TooSlowError:
            self.outcome_was_lost = True
            self._give_up(self._admin._calls.late(broker_id, request, "in time"))
        except ClientError as error:
            if not is_retriable(error):
                raise
            self.outcome_was_lost = self.outcome_was_lost or not isinstance(error, CannotReachBroker)
            self.last_error = error
        return None

    async def ask_any(
        self, request: Request, answer: type[R], knows: Callable[[int, R], bool] = lambda broker_id, found: True
    ) -> tuple[int, R]:
        """Who answered first, and what. knows: whether that broker's answer counts; else the next one is asked. The
        last cause once the time is over."""

        async def one(broker_id: int) -> R | None:
            found = await self.ask(broker_id, request, answer)
            return found if found is not None and knows(broker_id, found) else None

        brokers = self._admin._first_answers
        while True:
            view = self._admin._metadata.view
            # The controller first: it is the last to have heard of no topic that exists.
            order = brokers.in_order(view.brokers, view.controller_id)
            found = await brokers.first(order, one, self._deadline, is_change=isinstance(request, _CHANGES))
            if found is not None:
                return found
            await self.learn()

    async def learn(self) -> None:
        """Refresh what is known of the cluster, then wait a moment. The last cause once the time is over."""
        metadata = self._admin._metadata
        await self._admin._raise_unless_running()
        self._attempts += 1
        in_time = await metadata.wait_for_answer(self._deadline)
        if metadata.last_error is not None:
            self.last_error = metadata.last_error
        if not in_time:
            self._give_up(self.last_error)
        if self._attempts > 1:
            wait_ms = backoff_ms(self._admin.settings, self._attempts - 1, self._admin._environment)
            await trio.sleep_until(min(self._deadline, trio.current_time() + wait_ms / 1000))
            if trio.current_time() >= self._deadline:
                self._give_up(self.last_error)

    async def before_repeating(self, repeat: bool, what: str) -> None:
        if repeat:
            self.last_error = self.last_error or BrokerMisbehaved(f"{what}: the controller's answer is incomplete")
            await self.learn()

    def _give_up(self, cause: Exception | None) -> None:
        text = f"not done within {self._limit_ms:.0f} ms (default_api_timeout_ms)"
        if isinstance(cause, NoBrokerReachable):
            error: ClientError = NoBrokerReachable(f"{cause}; {text}")
        else:
            error = RequestTimedOut(f"{text}; last cause: {cause or self._silence()}")
        error.is_silence = isinstance(cause, ClientError) and cause.is_silence
        raise error from cause

    def _silence(self) -> str:
        """The cause where no request failed: there was nobody to ask."""
        view = self._admin._metadata.view
        if view.cluster_id and not view.brokers:
            return "the brokers that answer know no controller and no living broker: none has reached them yet"
        return "no broker has answered yet"
