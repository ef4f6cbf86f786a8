"""Who has passed how much: a sensor for each user, client id or pair that a quota counts for. Pure.

Memory is bounded: a sensor that was idle for an hour goes (Kafka's `InactiveSensorExpirationTimeSeconds`), and beyond
`MAX_SENSORS` whoever comes shares the sensor of the quota that counts for them: who invents client ids without end
gets, with everybody else who does, no more than one of them. So does a client id that is longer than a name needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from strandline.broker.quotas.entities import Bounds, Decided, QuotaEntity, decide, encoded
from strandline.broker.quotas.rate import Meter, SampledRate

MAX_SENSORS = 10_000
"""Of each resource."""
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
    """What those pass together who share a quota. `line`, `muted`, `passing` and `unreceived` are of `holding`: whose
    requests wait for their turn, in order, who is not read until a time, whose request is on its way to its handler,
    with those behind it that are to go there, too, and whose large frames are not received until there is room for
    them, or nothing is owed."""

    __slots__ = (
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
        self.muted: dict[Any, None] = {}
        self.passing: dict[Any, None] = {}
        self.unreceived: dict[Any, None] = {}
        self.changes = 0
        """How often another quota began to count: what was charged or paid before counts no more."""
        self.turn_of: object = None
        """Whose request may pass, whatever is owed: it has been the first in line."""

    def is_idle(self, now: float) -> bool:
        """Nobody used it for an hour, nobody waits for it, nothing is owed."""
        return now - self.used_at >= IDLE_S and not self.line and not self.muted and self.meter.is_free(now)

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
        self._sensors: dict[tuple[str, str], Sensor] = {}
        self._shared: dict[QuotaEntity, Sensor] = {}
        self._known: dict[tuple[str, str], Sensor | None] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._sensors) + len(self._shared)

    def __iter__(self) -> Iterator[Sensor]:
        yield from (*self._sensors.values(), *self._shared.values())

    def of(self, user: str, client_id: str, now: float) -> Sensor | None:
        """Under which sensor a client with these names is counted; None: no quota counts for it."""
        names = user, client_id
        try:
            sensor = self._known[names]
        except KeyError:
            if len(client_id) > MAX_OWN_CHARACTERS:
                return self._find(encoded(user), encoded(client_id), now, has_own=False)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            sensor = self._known[names] = self._find(encoded(user), encoded(client_id), now)
        if sensor is not None:
            sensor.used_at = now
        return sensor

    def _find(self, user: str, client_id: str, now: float, *, has_own: bool = True) -> Sensor | None:
        """has_own: else it shares one where the quota tells client ids apart."""
        decided = decide(self.bounds, user, client_id)
        if decided is None:
            return None
        names = decided.user, decided.client_id
        found = self._sensors.get(names)
        if found is None:
            self._make_room(now)
            if len(self._sensors) < MAX_SENSORS and (has_own or not decided.client_id):
                found = self._sensors[names] = Sensor(decided, self, *names)
            else:
                found = self._shared.get(decided.entity)
                if found is None:
                    others = decided.user and OVERFLOW, decided.client_id and OVERFLOW
                    found = self._shared[decided.entity] = Sensor(decided, self, *others)
        return found

    def _make_room(self, now: float) -> None:
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at = now
        self._sensors = {names: each for names, each in self._sensors.items() if not each.is_idle(now)}
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
