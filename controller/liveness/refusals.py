"""When refused connections mean that a process is gone. Pure.

A machine that answers "nobody listens here" (a refusal) says something; one that is silent does not, nor does a
connection that breaks, or another failure: after these the count begins anew. An answer ends it.

The rule: `REFUSALS` in a row, the last of them at least `failure.detection.refused.ms` after the first. A life of a
broker that was suspected and answered after all, or was elected controller since, was a false alarm: each doubles the
time that its next one takes, and after `MAX_FALSE_ALARMS` of them its ZooKeeper session alone decides. So two brokers
that refuse each other, and nobody else, do not succeed each other for ever.
"""

from __future__ import annotations

from strandline.controller.controller_context import LiveBroker

REFUSALS = 3
MAX_FALSE_ALARMS = 3
ROUNDING_S = 0.001
MIN_PACE_S = 0.01
"""However small the key is: a machine without a broker is asked for until a session ends, or a broker starts there."""


class FalseAlarms:
    """What one broker knows of them: of each other broker those of its latest life."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}
        """Broker id → (broker epoch, false alarms)."""
        self._suspects: dict[int, int] = {}
        """Broker id → broker epoch, of those that this broker took for gone as controller."""

    def of(self, broker: LiveBroker) -> int:
        epoch, count = self._counts.get(broker.broker_id, (broker.epoch, 0))
        return count if epoch == broker.epoch else 0

    def note(self, broker: LiveBroker) -> int:
        """It was suspected, and lives. Returns how often this life has done so."""
        count = self.of(broker) + 1
        self._counts[broker.broker_id] = broker.epoch, count
        self._suspects.pop(broker.broker_id, None)
        return count

    def suspect(self, broker: LiveBroker) -> None:
        """This broker is controller and takes that one for gone."""
        self._suspects[broker.broker_id] = broker.epoch

    def is_suspected(self, broker: LiveBroker) -> bool:
        """This very life was taken for gone, and nothing has shown yet that it lives."""
        return self._suspects.get(broker.broker_id) == broker.epoch


class RefusalCount:
    """Of one attempt to reach one life of a broker. Times are seconds of any clock."""

    def __init__(self, refused_ms: int, false_alarms: int) -> None:
        self.pace_s = max(refused_ms / 1000 / (REFUSALS - 1), MIN_PACE_S)
        """Between two attempts."""
        self._needed_s = refused_ms / 1000 * 2**false_alarms - ROUNDING_S
        self._can_tell = false_alarms < MAX_FALSE_ALARMS
        self._count = 0
        self._first_at = 0.0

    @property
    def has_begun(self) -> bool:
        return self._count > 0

    def refused(self, now_s: float) -> bool:
        """One more refusal. Returns whether the process is gone."""
        if not self._count:
            self._first_at = now_s
        self._count += 1
        return self._can_tell and self._count >= REFUSALS and now_s - self._first_at >= self._needed_s

    def begin_anew(self) -> None:
        """Something else happened than a refusal, or nothing could be concluded."""
        self._count = 0
