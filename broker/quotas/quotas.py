"""All quotas of a broker: read from ZooKeeper when they change, and put into effect.

`/config/users`, `/config/clients`, `/config/ips` are kinds of `admin/config_changes`, which says what is to be read
again. A value that cannot be used, or a znode that cannot be read, is named, and the last good one counts on: who
mistypes a quota neither removes it nor stops anybody. Whom an altered quota holds is let go.

There is a gate before the handlers only while a quota of clients is set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial

import structlog
import trio

from strandline.broker.network.request_channel import RequestChannel
from strandline.broker.quotas.connections import CreationRates
from strandline.broker.quotas.entities import (
    CLIENTS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    KINDS,
    OF_CLIENTS,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USERS,
    Bounds,
    InvalidQuota,
    QuotaEntity,
    address_at,
    entity_at,
    read_quota,
)
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.holding import ask_again, let_go
from strandline.broker.quotas.mutations import MutationGate
from strandline.broker.quotas.sensors import SensorRow, Sensors, Windows
from strandline.protocol.znodes import CONFIG_PATH
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.standing import Standing, standing_of
from strandline.runtime.coordination import ConnectionLost, Coordination, CoordinationError, SessionExpired, Znode

RESOURCES = {
    PRODUCER_BYTE_RATE: "Produce",
    CONSUMER_BYTE_RATE: "Fetch",
    REQUEST_PERCENTAGE: "Request",
    CONTROLLER_MUTATION_RATE: "ControllerMutation",
}
"""Kafka's names of what is limited, in figures."""
FOREIGN_PREFIX = "SCRAM-"
"""Credentials stand beside the quotas of a user."""
READ_PER_STEP = 200
"""Entities that are looked at without letting others run: a millisecond or two."""


class Quotas:
    """See the module."""

    def __init__(
        self, current: CurrentConfig, coordination: Coordination, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        config = current.value
        bytes_windows = Windows(
            config.quota_window_size_seconds, config.quota_window_num, config.quota_window_size_seconds
        )
        size_s, count = config.controller_quota_window_size_seconds, config.controller_quota_window_num
        windows = {
            REQUEST_PERCENTAGE: bytes_windows._replace(is_debt_bounded=True),
            # A client that was quiet may create what its quota gives in all windows at once (KIP-599).
            CONTROLLER_MUTATION_RATE: Windows(size_s, count, size_s * count, is_debt_bounded=True),
        }
        self.sensors = {key: Sensors(RESOURCES[key], windows.get(key, bytes_windows)) for key in OF_CLIENTS}
        # Clients open several connections when they begin; Kafka lets what all windows give pass at once.
        connection_windows = bytes_windows._replace(saved_s=bytes_windows.owed_s)
        self.connections = CreationRates(connection_windows, config.max_connection_creation_rate)
        self._current = current
        current.watch(self._bound_connections, BrokerConfig.max_connection_creation_rate)
        self._coordination = coordination
        self._log = log
        self._values: dict[QuotaEntity, dict[str, float]] = {}
        self._faults: dict[QuotaEntity, str] = {}
        self._unreadable: dict[str, str] = {}
        """Kinds whose folder may not be read, and why; all of it is looked at again."""
        self._put_into_effect: Callable[[], None] = _nothing

    def _bound_connections(self) -> None:
        self.connections.set_rate(self._current.value.max_connection_creation_rate)

    def limit(self, channel: RequestChannel, gate: QuotaGate, mutations: MutationGate) -> None:
        """Have them hold the requests of that channel."""

        def put_into_effect() -> None:
            if not any(each.bounds for each in self.sensors.values()):
                channel.switch_gate(None)
                channel.before_large = channel.debt_of = channel.passage_of = None
                return
            channel.switch_gate(lambda api, handler: gate(api, mutations(api, handler)), gate.end_burst)
            channel.before_large, channel.debt_of = gate.before_large, gate.debt_of
            channel.passage_of = gate.passage_of

        self._put_into_effect = put_into_effect
        put_into_effect()

    @property
    def values(self) -> dict[QuotaEntity, dict[str, float]]:
        """What counts: entity → key → bound."""
        return self._values

    def rows(self) -> Iterator[SensorRow]:
        """For figures: who passed something lately, how much of it, and for how long who exceeds it is held."""
        now = trio.current_time()
        for sensors in self.sensors.values():
            yield from sensors.rows(now)

    def connection_rows(self) -> Iterator[tuple[str, float]]:
        """The same of addresses: how many connections each made per second."""
        return self.connections.rows(trio.current_time())

    # --- what stands in ZooKeeper ------------------------------------------------------------------------------------

    def readers(self) -> dict[str, tuple[Callable[[Collection[str] | None], Awaitable[None]], Callable[[], list[str]]]]:
        """For each kind of entities: reads those with these names again, or all (None); which wait to be mended."""
        return {kind: (partial(self._read_again, kind), partial(self._troubled, kind)) for kind in KINDS}

    async def read_all(self) -> None:
        """ConnectionLost, SessionExpired."""
        for kind in KINDS:
            await self._read_again(kind, None)

    async def as_they_stand(self) -> dict[QuotaEntity, dict[str, float]]:
        """Read for who asks, and not put into effect: that is done in order, by what is announced. Where a value cannot
        be used it is the one that counts. CoordinationError."""
        await self._coordination.sync()  # another broker, by another server, may have written
        found: dict[QuotaEntity, dict[str, float]] = {}

        def look(entity: QuotaEntity, standing: Standing) -> None:
            values, _ = _usable(entity, standing, self._values.get(entity, {}))
            if values:
                found[entity] = values

        for kind in KINDS:
            entities, _ = await self._find(kind)
            await self._look_at(entities, look)
        return found

    async def _read_again(self, kind: str, names: Collection[str] | None) -> None:
        try:
            await self._read(kind, names)
        except (ConnectionLost, SessionExpired):
            raise
        except CoordinationError as error:  # the broker goes on, by what it knows
            if self._unreadable.get(kind) != str(error):
                self._log.error("quotas cannot be read: the last good ones count", kind=kind, why=str(error))
            self._unreadable[kind] = str(error)
        else:
            if names is None:
                self._unreadable.pop(kind, None)

    async def _read(self, kind: str, names: Collection[str] | None) -> None:
        refused: CoordinationError | None = None
        if names is None:
            found, refused = await self._find(kind)
            asked = {*found, *(each for each in self._values | self._faults if each.path.startswith(f"{kind}/"))}
        else:
            asked = {entity for name in names if (entity := entity_at(f"{kind}/{name}")) is not None}
        await self._look_at(sorted(asked, key=lambda each: each.path), self._take_over)
        self._apply()
        if refused is not None:
            raise refused

    async def _look_at(self, entities: Sequence[QuotaEntity], look: Callable[[QuotaEntity, Standing], None]) -> None:
        """At each as it stands, so many at a time: others run in between."""
        for first in range(0, len(entities), READ_PER_STEP):
            some = entities[first : first + READ_PER_STEP]
            paths = [f"{CONFIG_PATH}/{each.path}" for each in some]
            znodes = await self._coordination.get_each(paths)
            for entity, path, znode in zip(some, paths, znodes, strict=True):
                look(entity, quota_standing(path, znode))

    async def _find(self, kind: str) -> tuple[list[QuotaEntity], CoordinationError | None]:
        """All that have a znode, as far as folders may be read: the error of one that may not. CoordinationError where
        that is the folder of all."""
        refused: CoordinationError | None = None
        [names] = await self._coordination.children_many([f"{CONFIG_PATH}/{kind}"])
        paths = [f"{kind}/{name}" for name in names or ()]
        if kind == USERS:
            folders = [f"{path}/{CLIENTS}" for path in paths]
            below = await self._coordination.children_each([f"{CONFIG_PATH}/{folder}" for folder in folders])
            for folder, names_below in zip(folders, below, strict=True):
                if isinstance(names_below, CoordinationError):
                    refused = names_below
                else:
                    paths += [f"{folder}/{name}" for name in names_below or ()]
        found: list[QuotaEntity] = []
        for number, path in enumerate(paths, 1):
            if (entity := entity_at(path)) is not None:
                found.append(entity)
            if number % READ_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return found, refused

    def _take_over(self, entity: QuotaEntity, standing: Standing) -> None:
        before = self._values.get(entity, {})
        values, faults = _usable(entity, standing, before)
        if values != before:
            self._log.info("quotas changed", entity=entity.path, quotas=values)
        self._tell(entity, "; ".join(faults))
        if values:
            self._values[entity] = values
        else:
            self._values.pop(entity, None)

    def _tell(self, entity: QuotaEntity, fault: str) -> None:
        """Once for as long as it stays the same."""
        if fault == self._faults.get(entity, ""):
            return
        if fault:
            self._faults[entity] = fault
            self._log.error(
                "a quota is to be mended: the last good value counts until then", entity=entity.path, why=fault
            )
        else:
            del self._faults[entity]

    def _troubled(self, kind: str) -> list[str]:
        if kind in self._unreadable:
            return ["*"]
        return [each.path.removeprefix(f"{kind}/") for each in self._faults if each.path.startswith(f"{kind}/")]

    def _apply(self) -> None:
        now = trio.current_time()
        for key, sensors in self.sensors.items():
            bounds = _bounds(key, self._values)
            if bounds != sensors.bounds:
                for sensor in sensors.set_bounds(bounds, now):
                    let_go(sensor)
                for sensor in sensors:
                    ask_again(sensor)
        self.connections.set_ip_bounds(_of_addresses(_bounds(CONNECTION_CREATION_RATE, self._values)), now)
        self._put_into_effect()


def _usable(entity: QuotaEntity, standing: Standing, before: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    """What counts of that, with the last good values where one cannot be used, and why it cannot."""
    if standing.overrides is None:
        return before, [standing.why]
    values: dict[str, float] = {}
    faults: list[str] = []
    for key, text in standing.overrides.items():
        if key.startswith(FOREIGN_PREFIX):
            continue
        try:
            values[key] = read_quota(entity, key, text)
        except InvalidQuota as error:
            faults.append(str(error))
            if key in before:
                values[key] = before[key]
    return values, faults


def _bounds(key: str, values: dict[QuotaEntity, dict[str, float]]) -> dict[QuotaEntity, float]:
    return {entity: each[key] for entity, each in values.items() if key in each}


def _of_addresses(bounds: Bounds) -> Bounds:
    """The same by addresses. Where two znodes are of the same one, its own spelling counts."""
    addresses = {entity: QuotaEntity(ip=address_at(entity.ip or "")) for entity in bounds}
    by_spelling = sorted(bounds, key=lambda each: (addresses[each] == each, each.path))
    return {addresses[each]: bounds[each] for each in by_spelling}


def quota_standing(path: str, znode: Znode | CoordinationError | None) -> Standing:
    """What stands there. A user whose client ids alone have quotas has a znode without anything in it."""
    return Standing({}) if isinstance(znode, Znode) and not znode.data else standing_of(path, znode)


def _nothing() -> None:
    """Quotas that hold nobody yet."""
