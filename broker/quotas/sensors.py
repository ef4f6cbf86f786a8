"""Who has passed how much: a sensor for each user, client id or pair that a quota counts for. Pure.

Memory is bounded: a sensor that was idle for an hour goes (Kafka's `InactiveSensorExpirationTimeSeconds`). Where there
are `MAX_SENSORS`, who is new has the place of one that is as new: who invents ten thousand client ids takes the places
of others for as long as these owe, and no longer. Whoever finds no place shares the sensor of the quota that counts for
them, with everybody else who does, and so does a client id that is longer than a name needs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from strandline.broker.quotas.entities import Bounds, Decided, QuotaEntity, decide, encoded
from strandline.broker.quotas.rate import Meter, SampledRate

MAX_SENSORS = 10_000
"""Of each resource."""
LOOKED_AT = 10
"""Sensors, where there is no place, for each client that has none: one of them may be as new."""
MAX_KNOWN = 10_000
"""Pairs of user and client id whose sensor is looked up at once; then all are looked up anew."""
MAX_OWN_CHARACTERS = 249
"""Of a client id that has a sensor of its own: as many as a topic's name may have."""
IDLE_S = 3600.0
SWEEP_S = 60.0
OVERFLOW = "__other"
"""The name of whom a shared sensor counts, in figures."""


class Windows(NamedTuple):
    """`quota.window.size.seconds`, `quota.window.num`; saved_s: what a quiet client may take at once is given in."""

    size_s: float
    number: int
    saved_s: float
    is_debt_bounded: bool = False
    """No more is owed than what is given in all windows; else whoever is first in line waits until all is made up for.
    Nobody is muted, or told to wait, for longer than all windows in any case."""

    @property
    def owed_s(self) -> float:
        return self.size_s * self.number


class Sensor:
    """What those pass together who share a quota. The rest is of `holding`. `line`: whose requests wait for their turn,
    in order. `ahead`: whose come before these, since they were the first in line already and are now the first in
    another one. `muted`: who is not read until a time. `passing`: whose request is on its way to its handler, with
    those behind it that are to go there, too. `unreceived`: whose large frames are not received until there is room
    for them, or nothing is owed."""

    __slots__ = (
        "ahead",
        "changes",
        "client_id",
        "entity",
        "line",
        "longest_held_s",
        "meter",
        "muted",
        "passing",
        "rate",
        "table",
        "throttled",
        "turn_of",
        "unreceived",
        "used_at",
        "user",
    )

    def __init__(self, decided: Decided, table: Sensors, user: str, client_id: str) -> None:
        windows = table.windows
        self.table = table
        self.entity = decided.entity
        self.user = user
        self.client_id = client_id
        self.longest_held_s = windows.owed_s
        self.meter = Meter(decided.bound, windows.saved_s, windows.owed_s if windows.is_debt_bounded else math.inf)
        self.rate = SampledRate(windows.size_s, windows.number)
        self.throttled = 0
        """How often it was exceeded."""
        self.used_at = 0.0
        self.line: dict[Any, int] = {}  # with the bytes of each; of time it is not known what a request takes
        self.ahead: dict[Any, int] = {}
        self.muted: dict[Any, None] = {}
        self.passing: dict[Any, None] = {}
        self.unreceived: dict[Any, None] = {}
        self.changes = 0
        """How often another quota began to count: what was charged or paid before counts no more."""
        self.turn_of: object = None
        """Whose request may pass, whatever is owed: it has been the first in line."""

    @property
    def first_in_line(self) -> Any:
        """Whose request has its turn when nothing is owed."""
        return next(iter(self.ahead or self.line), None)

    def is_idle(self, now: float) -> bool:
        """Nobody used it for an hour, nobody waits for it, nothing is owed."""
        return now - self.used_at >= IDLE_S and not self.first_in_line and not self.muted and self.meter.is_free(now)

    def is_as_new(self, now: float) -> bool:
        """Nothing is lost with it but a figure: nothing is owed, all is saved up, nobody waits for it."""
        waits = self.first_in_line or self.muted or self.passing or self.unreceived
        return not waits and self.meter.is_as_new(now)

    def held_s(self, now: float) -> float:
        """For how long who exceeds it now is muted, and told so."""
        return min(self.meter.owed_s(now), self.longest_held_s)

    def take(self, amount: float, now: float) -> float:
        """Count it; returns `held_s`."""
        self.used_at = now
        self.rate.add(amount, now)
        if self.meter.take(amount, now) > 0.0:
            self.throttled += 1
        return self.held_s(now)

    def give_back(self, amount: float, counted: float) -> None:
        """What was taken did not pass after all. counted: of it, as the meter told then."""
        self.rate.give_back(amount)
        self.meter.give_back(counted)


class Charge:
    """What was taken, by who may have to give it back."""

    def __init__(self, sensor: Sensor, amount: float, now: float) -> None:
        sensor.take(amount, now)
        self._sensor = sensor
        self._amount = amount
        self._counted = sensor.meter.counted
        self._changes = sensor.changes

    def give_back(self) -> None:
        """It did not pass after all. Where another quota counts by now, that has charged nothing."""
        if self._sensor.changes == self._changes:
            self._sensor.give_back(self._amount, self._counted)


class SensorRow(NamedTuple):
    """A figure's line. Encoded names; "" where it does not tell them apart."""

    resource: str
    user: str
    client_id: str
    per_second: float
    throttle_s: float
    """For how long who exceeds it now is held."""
    left: float = 0.0
    """How much may pass at once; negative: so much is owed."""


class Sensors:
    """Of one resource, whose key in the znodes has `bounds`."""

    def __init__(self, resource: str, windows: Windows) -> None:
        self.resource = resource
        self.bounds: Bounds = {}
        self.windows = windows
        self.version = 0
        """How often another table began to count: another sensor may count for who waits."""
        self._sensors: OrderedDict[tuple[str, str], Sensor] = OrderedDict()
        """By encoded names; where there is no place, those first that were looked at longest ago."""
        self._shared: dict[QuotaEntity, Sensor] = {}
        self._known: dict[tuple[str, str], Sensor | None] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._sensors) + len(self._shared)

    def __iter__(self) -> Iterator[Sensor]:
        yield from (*self._sensors.values(), *self._shared.values())

    def of(self, user: str, client_id: str, now: float) -> Sensor | None:
        """Under which sensor a client with these names is counted; None: no quota counts for it."""
        try:
            sensor = self._known[user, client_id]
        except KeyError:
            sensor = self._find(user, client_id, now)
        if sensor is not None:
            sensor.used_at = now
        return sensor

    def _find(self, user: str, client_id: str, now: float) -> Sensor | None:
        """Remembered, but for who shares one: there may be a place next time."""
        is_long = len(client_id) > MAX_OWN_CHARACTERS
        decided = decide(self.bounds, encoded(user), encoded(client_id))
        sensor = None
        if decided is not None:
            sensor = self._own(decided, now, may_begin=not (is_long and decided.client_id))
            if sensor is None:
                return self._of_many(decided)
        if not is_long:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[user, client_id] = sensor
        return sensor

    def _own(self, decided: Decided, now: float, *, may_begin: bool) -> Sensor | None:
        names = decided.user, decided.client_id
        sensor = self._sensors.get(names)
        if sensor is None and may_begin:
            self._sweep(now)
            if self._has_place(now):
                sensor = self._sensors[names] = Sensor(decided, self, *names)
        return sensor

    def _of_many(self, decided: Decided) -> Sensor:
        sensor = self._shared.get(decided.entity)
        if sensor is None:
            names = decided.user and OVERFLOW, decided.client_id and OVERFLOW
            sensor = self._shared[decided.entity] = Sensor(decided, self, *names)
        return sensor

    def _has_place(self, now: float) -> bool:
        """Some are looked at where there is none, however many there are: a request is not to take longer for that."""
        for _ in range(LOOKED_AT):
            if len(self._sensors) < MAX_SENSORS:
                return True
            names, sensor = self._sensors.popitem(last=False)
            if sensor.is_as_new(now):
                self._known.clear()  # users are known by many client ids
            else:
                self._sensors[names] = sensor
        return len(self._sensors) < MAX_SENSORS

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at = now
        kept = ((names, each) for names, each in self._sensors.items() if not each.is_idle(now))
        self._sensors = OrderedDict(kept)
        self._shared = {entity: each for entity, each in self._shared.items() if not each.is_idle(now)}
        self._known = {names: each for names, each in self._known.items() if each is None or not each.is_idle(now)}

    def set_bounds(self, bounds: Mapping[QuotaEntity, float], now: float) -> list[Sensor]:
        """Another table counts from now on. Returns the sensors whose quota is another one now, or gone: who waits for
        them is let go."""
        self.bounds = dict(bounds)
        self.version += 1
        self._known.clear()
        changed: list[Sensor] = []
        for names, sensor in list(self._sensors.items()):
            decided = decide(self.bounds, *self._asked_as(sensor))
            if decided is None or (decided.user, decided.client_id) != names:
                del self._sensors[names]
                changed.append(sensor)
            elif decided.bound != sensor.meter.bound:
                sensor.entity = decided.entity
                sensor.meter.set_bound(decided.bound)
                changed.append(sensor)
        for entity, sensor in list(self._shared.items()):
            if self.bounds.get(entity) != sensor.meter.bound:
                del self._shared[entity]
                changed.append(sensor)
        return changed

    def _asked_as(self, sensor: Sensor) -> tuple[str, str]:
        """A client that the sensor counts. Of a user's sensor any client id will do that has no quota of its own: none
        is called like this, since names are encoded."""
        return sensor.user or "<any>", sensor.client_id or "<any>"

    def rows(self, now: float) -> Iterator[SensorRow]:
        """Of who passed something lately, or is held."""
        for sensor in self:
            yield SensorRow(
                self.resource,
                sensor.user,
                sensor.client_id,
                sensor.rate.per_second(now),
                sensor.held_s(now),
                sensor.meter.left(now),
            )
