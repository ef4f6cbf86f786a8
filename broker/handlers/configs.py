"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: what ZooKeeper has of a topic or a broker, read and written.

Any broker serves topics and what counts for all brokers; what counts for one broker that one serves, whose file is part
of the answer. Nothing here takes a configuration over: a change is written together with its announcement below
/config/changes, in one transaction, and every broker, this one too, acts on that (`admin/config_changes`).

The deciding is `runtime/config/describing` and `runtime/config/altering`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import structlog
import trio

from strandline.broker.admin.dynamic_config import ENTITY_TYPE, FOR_ALL, DynamicConfig
from strandline.broker.handlers.asking_zookeeper import PATIENCE_S, asking_zookeeper, kept_out
from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.network.request import RequestInHand
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from strandline.protocol.topic_name import InvalidTopicName, check_topic_name
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, CONFIG_PATH, ConfigChangeZnode, ConfigZnode, TopicIdZnode
from strandline.runtime.config.altering import Entity, broker_entity, incremented, replaced, topic_entity
from strandline.runtime.config.describing import BrokerView, is_read_only
from strandline.runtime.config.standing import Standing, read_overrides, standing_of
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    Check,
    Coordination,
    Create,
    NoNode,
    Operation,
    SetData,
    TransactionFailed,
)

MAX_RESOURCES = 1000
"""Of one request: each is a transaction to alter, and some thirty keys to describe."""
DESCRIBED_PER_STEP = 20
MAX_ROUNDS = 20
TOPICS = "topics"

T = TypeVar("T", AlterConfigsResource, IncrementalAlterConfigsResource)
Altered = Callable[[Entity, Standing], dict[str, str]]
"""(whose, what stands there) → what is to stand there. BrokerError."""


class _Target(NamedTuple):
    """A znode below /config, and what must hold while it is written."""

    entity_type: str
    name: str
    guards: tuple[Check, ...] = ()

    @property
    def path(self) -> str:
        return ConfigZnode.path(self.name, self.entity_type)


class ConfigHandlers:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        dynamic: DynamicConfig,
        metadata: MetadataCache,
        coordination: Coordination,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._broker_id = broker_id
        self._dynamic = dynamic
        self._metadata = metadata
        self._coordination = coordination
        self._log = log

    # --- DescribeConfigs ---------------------------------------------------------------------------------------------

    async def describe(self, request: RequestInHand[DescribeConfigsRequest]) -> DescribeConfigsResponse:
        message = request.message
        _check_count(len(message.resources))
        until = trio.current_time() + PATIENCE_S
        layers = self._dynamic.known if _is_settled(message) else await asking_zookeeper(self._dynamic.layers, until)
        view = BrokerView(self._dynamic.static, layers)
        topics = [each.resource_name for each in message.resources if each.resource_type == ConfigResource.TOPIC]
        topics = [name for name in topics if name in self._metadata.topics]
        paths = [ConfigZnode.path(name) for name in topics]
        found = await asking_zookeeper(partial(read_overrides, self._coordination, paths), until)
        standing = dict(zip(topics, found, strict=True))
        results: list[DescribeConfigsResult] = []
        times = _times(message.resources)
        for resource in message.resources:
            kind, name = resource.resource_type, resource.resource_name
            try:
                _check_named_once(times, kind, name)  # else naming one again and again multiplies its answer
                configs = self._described(resource, view, standing)
                results.append(DescribeConfigsResult(0, None, kind, name, [_asked(each, message) for each in configs]))
            except BrokerError as error:
                results.append(DescribeConfigsResult(error.code, str(error.args[0]), kind, name))
            if len(results) % DESCRIBED_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return DescribeConfigsResponse(results)

    def _described(
        self, resource: DescribeConfigsResource, view: BrokerView, standing: Mapping[str, Standing]
    ) -> list[DescribeConfigsResourceResult]:
        name, wanted = resource.resource_name, frozenset(resource.configuration_keys or ())
        if resource.resource_type == ConfigResource.TOPIC:
            self._check_topic(name)
            if name not in standing:  # it appeared a moment ago
                raise _unknown_topic(name)
            entries = view.of_topic(_readable(standing[name]))
        elif self._broker_name(resource.resource_type, name) == FOR_ALL:
            entries = view.of_all_brokers()
        else:
            entries = view.of_this_broker()
        return [entry for entry in entries if not wanted or entry.name in wanted]

    # --- AlterConfigs ------------------------------------------------------------------------------------------------

    async def alter(self, request: RequestInHand[AlterConfigsRequest]) -> AlterConfigsResponse:
        def make(resource: AlterConfigsResource) -> Altered:
            return lambda entity, standing: replaced(entity, standing.overrides or {}, resource.configs)

        return AlterConfigsResponse(await self._alter_each(request.message.resources, request, make))

    async def alter_incrementally(
        self, request: RequestInHand[IncrementalAlterConfigsRequest]
    ) -> IncrementalAlterConfigsResponse:
        def make(resource: IncrementalAlterConfigsResource) -> Altered:
            return lambda entity, standing: incremented(entity, _readable(standing), resource.configs)

        return IncrementalAlterConfigsResponse(await self._alter_each(request.message.resources, request, make))

    async def _alter_each(
        self,
        resources: Sequence[T],
        request: RequestInHand[AlterConfigsRequest] | RequestInHand[IncrementalAlterConfigsRequest],
        make: Callable[[T], Altered],
    ) -> list[AlterConfigsResourceResponse]:
        """One after the other, each by itself."""
        _check_count(len(resources))
        times = _times(resources)
        until = trio.current_time() + PATIENCE_S
        responses: list[AlterConfigsResourceResponse] = []
        for resource in resources:
            kind, name = resource.resource_type, resource.resource_name
            code, text = ErrorCode.NONE, None
            try:
                _check_named_once(times, kind, name)
                target = self._target(kind, name)
                is_inter_broker = request.context.is_inter_broker
                work = partial(self._alter_one, target, make(resource), request.message.validate_only, is_inter_broker)
                await asking_zookeeper(work, until)
                if not request.message.validate_only:
                    self._log.info(
                        "configuration altered",
                        entity=f"{target.entity_type}/{target.name}",
                        keys=[each.name for each in resource.configs],  # without values, which may be passwords
                        asked_by=str(request.context.peer),
                    )
            except BrokerError as error:
                code, text = error.code, str(error.args[0])
            responses.append(AlterConfigsResourceResponse(code, text, kind, name))
        return responses

    async def _alter_one(self, target: _Target, altered: Altered, validate_only: bool, is_inter_broker: bool) -> None:
        """Read, change, write on the condition that it is as it was read. CoordinationError; BrokerError."""
        announcement = ConfigChangeZnode(f"{target.entity_type}/{target.name}").encode()
        for _ in range(MAX_ROUNDS):
            [znode] = await self._coordination.get_many([target.path])
            standing = standing_of(target.path, znode)
            overrides = altered(await self._entity(target, standing, is_inter_broker), standing)
            if validate_only:
                return
            data = ConfigZnode(overrides).encode()
            write = Create(target.path, data) if znode is None else SetData(target.path, data, znode.stat.version)
            announce = Create(ConfigChangeZnode.SEQUENCE_PATH, announcement, sequence=True)
            operations: list[Operation] = [*target.guards, write, announce]
            try:
                await self._coordination.multi(operations)
                return
            except TransactionFailed as error:
                if error.index < len(target.guards):
                    raise _unknown_topic(target.name) from error
                if isinstance(error.cause, NoNode):
                    await self._make_folders(target.entity_type)
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"configuration of {target.name} keeps changing: repeat")

    async def _entity(self, target: _Target, standing: Standing, is_inter_broker: bool) -> Entity:
        layers = await self._dynamic.layers()
        if target.entity_type == TOPICS:
            return topic_entity(BrokerView(self._dynamic.static, layers).config)
        index = self._dynamic.names.index(target.name)
        layers[index] = layers[index]._replace(overrides=standing.overrides)
        return broker_entity(self._dynamic.static, layers, index, is_inter_broker=is_inter_broker)

    async def _make_folders(self, entity_type: str) -> None:
        """Somebody removed them, or the znode went since it was read."""
        for folder in (CONFIG_CHANGES_PATH, f"{CONFIG_PATH}/{entity_type}"):
            if await self._coordination.exists(folder) is None:
                await self._coordination.create(folder, parents=True)

    # --- resources ---------------------------------------------------------------------------------------------------

    def _target(self, kind: int, name: str) -> _Target:
        if kind == ConfigResource.TOPIC:
            self._check_topic(name)
            # By its id: when a topic is made anew under this name, the versions begin at 0 again.
            id_path = TopicIdZnode.path(name, self._metadata.topics[name].topic_id)
            return _Target(TOPICS, name, (Check(id_path, MATCH_ANY_VERSION),))
        return _Target(ENTITY_TYPE, self._broker_name(kind, name))

    def _check_topic(self, name: str) -> None:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error
        if name not in self._metadata.topics:
            raise _unknown_topic(name)

    def _broker_name(self, kind: int, name: str) -> str:
        """Of the znode below /config/brokers."""
        if kind == ConfigResource.BROKER_LOGGER:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the levels of a broker's loggers are not served")
        if kind != ConfigResource.BROKER:
            text = f"resources of type {kind} have no configuration here: ask about topics (2) and brokers (4)"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        if not name:
            return FOR_ALL
        if name != str(self._broker_id):
            text = f"this is broker {self._broker_id}: ask broker {name[:32]!r} itself, or, about all brokers, for ''"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        return name


def _check_count(resources: int) -> None:
    if resources > MAX_RESOURCES:
        text = f"one request is about at most {MAX_RESOURCES} topics and brokers, not {resources}: send several"
        raise BrokerError(ErrorCode.POLICY_VIOLATION, text)


def _is_settled(message: DescribeConfigsRequest) -> bool:
    """Nothing but keys of one broker that nobody changes while it runs. Those are told without ZooKeeper: where the
    admin port is, which says what is wrong, is asked most while that is away."""
    return all(
        resource.resource_type == ConfigResource.BROKER
        and resource.resource_name
        and resource.configuration_keys
        and all(map(is_read_only, resource.configuration_keys))
        for resource in message.resources
    )


def _times(resources: Sequence[T] | Sequence[DescribeConfigsResource]) -> Counter[tuple[int, str]]:
    return Counter((each.resource_type, each.resource_name) for each in resources)


def _check_named_once(times: Counter[tuple[int, str]], kind: int, name: str) -> None:
    if times[kind, name] > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name[:300]!r} stands in the request twice")


def _unknown_topic(name: str) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _readable(standing: Standing) -> dict[str, str]:
    if standing.is_refused:
        raise kept_out(standing.why)
    if standing.overrides is None:
        text = f"what is configured cannot be read ({standing.why}): replace it as a whole (AlterConfigs)"
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
    return standing.overrides


def _asked(entry: DescribeConfigsResourceResult, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return msgspec.structs.replace(
        entry,
        synonyms=entry.synonyms if message.include_synonyms else [],
        documentation=entry.documentation if message.include_documentation else None,
    )


R = TypeVar("R")
