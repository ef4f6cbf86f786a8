"""The quota of what the controller has to do: partitions that are created and deleted (`controller_mutation_rate`).

A client that was quiet may ask for what its quota gives in all windows at once, also for a little more: what it asks
for is not divided. While something is owed, whoever speaks a version that knows the error is refused, topic by topic,
with THROTTLING_QUOTA_EXCEEDED and the time after which to repeat (strict); older ones get what they ask for, and are
muted. What fails is not counted, nor is what is only validated. What is not done in time is: it goes on.

    1 check    what is to be created is only validated: what fails is answered, and was counted at no time
    2 charge   at once, topic by topic, what of the rest the quota allows
    3 do       that, and nothing else; what fails now, for another request was faster, is given back

So nobody is refused for what somebody else asks for and does not get, and of many that come at once none passes
uncounted. A deletion cannot be validated: what can be seen to fail counts for nothing, and goes to the controller.

What must fail is answered with its own error also while something is owed: a program that creates its topics at each
start need not wait to learn that they exist. A request of which nothing is charged and nothing refused holds nobody, as
in Kafka. Who is refused costs the controller one check, as anybody does who asks with validate_only.

Topics that are created because Metadata named them count for who asked, at the broker that was asked. While something
is owed they are not created: who asks is told to wait and to ask again, as for any topic that is on its way.

Source: ControllerMutationQuotaManager of Kafka 3.9, KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import trio

from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.network.dialects import Regions
from strandline.broker.network.dialects.kafka import KAFKA
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.broker.network.request_context import RequestContext
from strandline.broker.quotas.gate import throttled
from strandline.broker.quotas.holding import mute
from strandline.broker.quotas.sensors import Charge, Sensor, Sensors
from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    Message,
    Request,
)
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.protocol.types import NO_TOPIC_ID
from strandline.runtime.config.dynamic import CurrentConfig

FIRST_STRICT = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""Versions of Kafka's dialect that know the error. The native one always does."""
REFUSED = "the quota of partitions created and deleted (controller_mutation_rate) is used up; repeat after {} ms"

GOES_ON = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
"""What stands in an answer about partitions that are made or deleted, now or later."""


class _Asked(NamedTuple):
    """Topics that a request is about, in the order of the answer's results, each with the partitions that it is to
    count for; how to ask for fewer, and how to have them validated, where that can be."""

    topics: Sequence[tuple[Any, int]]
    of: Callable[[list[Any]], Request]
    validated: Callable[[], Request] | None = None


class MutationGate:
    """See the module. metadata: how many partitions a topic has. current: how many it gets where none are asked for."""

    def __init__(self, sensors: Sensors, metadata: MetadataCache, current: CurrentConfig) -> None:
        self._sensors = sensors
        self._metadata = metadata
        self._current = current

    def __call__(self, api: Api, handler: Handler) -> Handler:
        return partial(self._limited, handler) if api.key in FIRST_STRICT and self._sensors.bounds else handler

    async def _limited(self, handler: Handler, request: RequestInHand[Any]) -> Any:
        sensor = self._sensor(request.context)
        asked = None if sensor is None else self._asked(request.message)
        if sensor is None or asked is None or not asked.topics:
            return await handler(request)
        is_strict = request.dialect is not KAFKA or request.header.version >= FIRST_STRICT[request.api.key]
        results: list[Any] = [None] * len(asked.topics)
        # 1
        if asked.validated is not None:
            results = await _failures(handler, request, asked.validated())
        # 2
        places = [place for place, result in enumerate(results) if result is None]
        charges: dict[int, Charge] = {}
        refused: list[int] = []
        if (sensor := self._sensor(request.context)) is not None:  # while it was checked quotas may have changed
            charges, refused = _charged(sensor, {place: asked.topics[place][1] for place in places}, is_strict)
            if refused:
                refusals = _refusals(sensor, request.api, asked.of([asked.topics[place][0] for place in refused]))
                for place, refusal in zip(refused, refusals, strict=True):
                    results[place] = refusal
                places = [place for place in places if results[place] is None]
        # 3
        is_held = bool(charges or refused)
        request.on_answer(partial(self._answered, request, results, charges, is_held))
        if not places:
            response: Any = request.api.response
            return response([])
        if len(places) < len(results):
            request.message = asked.of([asked.topics[place][0] for place in places])
        return await handler(request)

    def _answered(
        self,
        request: RequestInHand[Any],
        results: list[Any],
        charges: dict[int, Charge],
        is_held: bool,
        message: Message | None,
        regions: Regions,
    ) -> tuple[Message, Regions] | None:
        """results: of each topic, None where the message has it. charges: of some of those, by their places. is_held:
        whoever asks is told what is owed, and waits for it."""
        if message is None:
            return None
        field = _results_of(message)
        done = iter(getattr(message, field))
        whole = [next(done) if result is None else result for result in results]
        for place, charge in charges.items():
            if whole[place].error_code not in GOES_ON:
                charge.give_back()
        message = msgspec.structs.replace(message, **{field: whole})
        return self._held(request, message) if is_held else message, regions

    def create_automatically(
        self,
        create: Callable[[str, str, Callable[[], Callable[[], None] | None] | None], None],
        names: list[str],
        request: RequestInHand[Any],
    ) -> None:
        """Have these topics created that Metadata named, for as long as nothing is owed. `create(name, who asks,
        charge)` calls charge, if it is not None, before a topic is created, which is not done if that returns None;
        and what it returns if nothing comes of it."""
        sensor = self._sensor(request.context)
        for name in names:
            if sensor is None or not _is_owed(sensor):
                charge = None if sensor is None else partial(self._charge_one, request.context)
                create(name, str(request.context.peer), charge)
        if sensor is not None:
            request.on_answer(partial(self._named, request))

    def _charge_one(self, context: RequestContext) -> Callable[[], None] | None:
        """A topic that was named. Other quotas may count by then."""
        sensor = self._sensor(context)
        if sensor is None:
            return lambda: None
        if _is_owed(sensor):
            return None
        return Charge(sensor, self._current.value.num_partitions, trio.current_time()).give_back

    def _named(
        self, request: RequestInHand[Any], message: Message | None, regions: Regions
    ) -> tuple[Message, Regions] | None:
        return None if message is None else (self._held(request, message), regions)

    def _held(self, request: RequestInHand[Any], message: Message) -> Message:
        """The answer, which tells for how long its connection is muted, where something is owed by the quota that
        counts by now."""
        sensor = self._sensor(request.context)
        owed_s = 0.0 if sensor is None else sensor.meter.owed_s(trio.current_time())
        if sensor is None or not owed_s:
            return message
        mute(request.connection, sensor, owed_s)
        request.note_throttled(owed_s)
        return throttled(message, owed_s)

    def _sensor(self, context: RequestContext) -> Sensor | None:
        if context.is_inter_broker:
            return None
        return self._sensors.of(context.principal, context.client_id, trio.current_time())

    def _asked(self, message: Request) -> _Asked | None:
        replaced = partial(msgspec.structs.replace, message)
        changes = CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest
        if not isinstance(message, changes) or message.validate_only:
            return None
        if isinstance(message, DeleteTopicsRequest):
            deleted = [(topic, self._deleted(topic)) for topic in message.asked()]
            return _Asked(deleted, lambda topics: replaced(topic_names=[], topics=topics))
        counted: list[tuple[Any, int]]
        if isinstance(message, CreateTopicsRequest):
            counted = [(topic, self._created(topic)) for topic in message.topics]
        else:
            counted = [(topic, self._added(topic)) for topic in message.topics]
        return _Asked(counted, lambda topics: replaced(topics=topics), partial(replaced, validate_only=True))

    def _created(self, topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return topic.num_partitions if topic.num_partitions > 0 else self._current.value.num_partitions

    def _added(self, topic: CreatePartitionsTopic) -> int:
        return max(topic.count - self._metadata.partitions_of(topic.name), 0)

    def _deleted(self, topic: DeleteTopicState) -> int:
        """As many as it has, where it goes: what is named twice over is refused, and so are the brokers' own."""
        name = self._metadata.name_of.get(topic.topic_id) if topic.name is None else topic.name
        is_refused = topic.name is not None and topic.topic_id != NO_TOPIC_ID
        if name is None or is_refused or name in INTERNAL_TOPICS or not self._current.value.delete_topic_enable:
            return 0
        return self._metadata.partitions_of(name)


async def _failures(handler: Handler, request: RequestInHand[Any], validated: Request) -> list[Any]:
    """The result of each topic that fails; None: it would be done. What the handler raises."""
    message, request.message = request.message, validated
    try:
        answer = await handler(request)
    finally:
        request.message = message
    return [result if result.error_code else None for result in getattr(answer, _results_of(answer))]


def _is_owed(sensor: Sensor) -> bool:
    return not sensor.meter.is_free(trio.current_time())


def _charged(sensor: Sensor, counts: Mapping[int, int], is_strict: bool) -> tuple[dict[int, Charge], list[int]]:
    """counts: of what is asked for, by its place. Returns the charges by place, and the places of what is refused: all
    that comes once something is owed, but for what counts for nothing."""
    charges: dict[int, Charge] = {}
    refused: list[int] = []
    for place, count in counts.items():
        if count and is_strict and _is_owed(sensor):
            refused.append(place)
        elif count:
            charges[place] = Charge(sensor, count, trio.current_time())
    return charges, refused


def _refusals(sensor: Sensor, api: Api, refused: Request) -> Sequence[Any]:
    text = REFUSED.format(round(sensor.meter.owed_s(trio.current_time()) * 1000))
    refusal = api.failure(refused, ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
    results: Sequence[Any] = getattr(refusal, _results_of(refusal))
    return results


def _results_of(message: Message) -> str:
    """The field that has a result for each topic."""
    return next(name for name in ("topics", "responses", "results") if name in type(message).__struct_fields__)
