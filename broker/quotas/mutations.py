"""The quota of what the controller has to do: partitions that are created and deleted (`controller_mutation_rate`).

A client that was quiet may ask for what its quota gives in all windows at once, also for a little more: what it asks
for is not divided. While something is owed, whoever speaks a version that knows the error is refused, topic by topic,
with THROTTLING_QUOTA_EXCEEDED and the time after which to repeat (strict); older ones get what they ask for, and are
muted. What fails is not counted, nor is what is only validated. What is not done in time is: it goes on.

Topics that are created because Metadata named them count for who asked, at the broker that was asked. While something
is owed they are not created: who asks is told to wait and to ask again, as for any topic that is on its way.

Source: ControllerMutationQuotaManager of Kafka 3.9, KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import trio

from strandline.broker.network.dialects import Regions
from strandline.broker.network.dialects.kafka import KAFKA
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.broker.network.request_context import RequestContext
from strandline.broker.quotas.gate import throttled
from strandline.broker.quotas.holding import mute
from strandline.broker.quotas.sensors import Sensor, Sensors
from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    Message,
    Request,
)
from strandline.runtime.config.dynamic import CurrentConfig

FIRST_STRICT = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""Versions of Kafka's dialect that know the error. The native one always does."""
REFUSED = "the quota of partitions created and deleted (controller_mutation_rate) is used up; repeat after {} ms"

GOES_ON = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
"""What stands in an answer about partitions that are made or deleted, now or later."""


class _Asked(NamedTuple):
    """Topics that a request is about, in the order of the answer's results, each with the partitions that it is to
    count for; and how to ask for fewer."""

    topics: Sequence[tuple[Any, int]]
    of: Callable[[list[Any]], Request]


class MutationGate:
    """See the module. partitions_of: how many a topic has, by its name or id (0: it is not known). current:
    has the number of those for which none is asked."""

    def __init__(
        self,
        sensors: Sensors,
        partitions_of: Callable[[str | bytes], int],
        current: CurrentConfig,
    ) -> None:
        self._sensors = sensors
        self._partitions_of = partitions_of
        self._current = current

    def __call__(self, api: Api, handler: Handler) -> Handler:
        return partial(self._limited, handler) if api.key in FIRST_STRICT and self._sensors.bounds else handler

    async def _limited(self, handler: Handler, request: RequestInHand[Any]) -> Any:
        now = trio.current_time()
        sensor = self._sensor(request.context)
        asked = None if sensor is None else self._asked(request.message)
        if sensor is None or asked is None or not asked.topics:
            return await handler(request)
        is_strict = request.dialect is not KAFKA or request.header.version >= FIRST_STRICT[request.api.key]
        passed: list[Any] = []
        refused: list[Any] = []
        counts: list[tuple[int, float]] = []
        for topic, partitions in asked.topics:
            if is_strict and not sensor.meter.is_free(now):
                refused.append(topic)
            else:
                sensor.take(partitions, now)
                passed.append(topic)
                counts.append((partitions, sensor.meter.counted))
        refusal = None
        if refused:
            text = REFUSED.format(round(sensor.meter.owed_s(now) * 1000))
            refusal = request.api.failure(asked.of(refused), ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
            request.message = asked.of(passed)
        request.on_answer(partial(self._answered, sensor, request, refusal, counts))
        if refusal is not None and not passed:
            return msgspec.structs.replace(refusal, **{_results_of(refusal): []})
        return await handler(request)

    def _answered(
        self,
        sensor: Sensor,
        request: RequestInHand[Any],
        refusal: Message | None,
        counts: list[tuple[int, float]],
        message: Message | None,
        regions: Regions,
    ) -> tuple[Message, Regions] | None:
        if message is None:
            return None
        place = _results_of(message)
        results = getattr(message, place)
        for (count, counted), result in zip(counts, results, strict=True):
            if result.error_code not in GOES_ON:
                sensor.give_back(count, counted)
        if refusal is not None:
            message = msgspec.structs.replace(message, **{place: [*results, *getattr(refusal, place)]})
        return _held(sensor, request, message), regions

    def create_automatically(
        self,
        create: Callable[[str, str, Callable[[], Callable[[], None]]], None],
        names: list[str],
        request: RequestInHand[Any],
    ) -> None:
        """Have these topics created that Metadata named, for as long as nothing is owed. `create(name, who asks,
        charge)` calls charge if a creation begins, and what that returns if nothing comes of it."""
        context, partitions = request.context, self._current.value.num_partitions
        sensor = self._sensor(context)

        def charge() -> Callable[[], None]:
            if sensor is None:
                return lambda: None
            sensor.take(partitions, trio.current_time())
            return partial(sensor.give_back, partitions, sensor.meter.counted)

        for name in names:
            if sensor is None or sensor.meter.is_free(trio.current_time()):
                create(name, str(context.peer), charge)
        if sensor is not None:
            request.on_answer(partial(self._named, sensor, request))

    def _named(
        self, sensor: Sensor, request: RequestInHand[Any], message: Message | None, regions: Regions
    ) -> tuple[Message, Regions] | None:
        return None if message is None else (_held(sensor, request, message), regions)

    def _sensor(self, context: RequestContext) -> Sensor | None:
        if context.is_inter_broker:
            return None
        return self._sensors.of(context.principal, context.client_id, trio.current_time())

    def _asked(self, message: Request) -> _Asked | None:
        replaced = partial(msgspec.structs.replace, message)
        if isinstance(message, CreateTopicsRequest):
            created = [(topic, self._created(topic)) for topic in message.topics]
            return None if message.validate_only else _Asked(created, lambda topics: replaced(topics=topics))
        if isinstance(message, CreatePartitionsRequest):
            added = [(topic, max(topic.count - self._partitions_of(topic.name), 0)) for topic in message.topics]
            return None if message.validate_only else _Asked(added, lambda topics: replaced(topics=topics))
        if isinstance(message, DeleteTopicsRequest):
            deleted = [(topic, self._partitions_of(topic.name or topic.topic_id)) for topic in message.asked()]
            return _Asked(deleted, lambda topics: replaced(topic_names=[], topics=topics))
        return None

    def _created(self, topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return topic.num_partitions if topic.num_partitions > 0 else self._current.value.num_partitions


def _held(sensor: Sensor, request: RequestInHand[Any], message: Message) -> Message:
    """The answer, which tells for how long its connection is muted, where something is owed."""
    owed_s = sensor.meter.owed_s(trio.current_time())
    if not owed_s:
        return message
    mute(request.connection, sensor, owed_s)
    request.note_throttled(owed_s)
    return throttled(message, owed_s)


def _results_of(message: Message) -> str:
    """The field that has a result for each topic."""
    return next(name for name in ("topics", "responses", "results") if name in type(message).__struct_fields__)
