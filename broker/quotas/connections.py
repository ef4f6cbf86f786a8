"""How fast connections may be made: to the broker as a whole, and by each address (KIP-612).

Who connects too fast to the broker (`max.connection.creation.rate`) is accepted later, nobody is refused: the system's
queue of connections holds them. A listener that brokers have for themselves is exempt. An address that exceeds its own
`connection_creation_rate` would hold up all others there: its connection is accepted, kept unserved while something is
owed, and closed. Memory is bounded: an address whose quota is unused is forgotten, and beyond `MAX_IPS` they share one.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.broker.quotas.entities import DEFAULT, Bounds, QuotaEntity, decide_ip
from strandline.broker.quotas.rate import Meter, SampledRate
from strandline.broker.quotas.sensors import Windows
from strandline.runtime.config.values import INT_MAX

MAX_IPS = 10_000


class CreationRates:
    """Pure; times are monotonic seconds."""

    def __init__(self, windows: Windows, per_s: int) -> None:
        """per_s: of the broker; the largest int sets no limit."""
        self._windows = windows
        self._of_ips: Bounds = {}
        self._ips: dict[str, Meter] = {}
        self._accepted: dict[str, SampledRate] = {}
        """For figures: of some of these addresses, how many connections they made lately that were served."""
        self.set_rate(per_s)

    def set_rate(self, per_s: int) -> None:
        """Of the broker as a whole, from now on."""
        self._broker = None if per_s >= INT_MAX else self._meter(per_s)

    def set_ip_bounds(self, bounds: Bounds, now: float) -> None:
        """From now on. Nobody's debt is forgotten but of those that have no quota any more: else who may alter the
        quota of any address lets all others begin anew."""
        self._of_ips = dict(bounds)
        for ip, meter in list(self._ips.items()):
            bound = decide_ip(bounds, ip)
            if bound is None:
                del self._ips[ip]
                self._accepted.pop(ip, None)
            elif bound != meter.bound:
                meter.change_bound(bound, now)

    def accept_in_s(self, now: float) -> float:
        """For how long the next connection to a listener of clients is left in the queue."""
        return 0.0 if self._broker is None else self._broker.owed_s(now)

    def note_accepted(self, now: float) -> None:
        if self._broker is not None:
            self._broker.take(1, now)

    def refused_for_s(self, ip: str, now: float) -> float:
        """For how long a new connection from there is kept before it is closed; 0: it is served."""
        if not self._of_ips:
            return 0.0
        meter = self._meter_of(ip, now)
        if meter is None:
            return 0.0
        if not meter.is_free(now):
            return meter.owed_s(now)
        owed_s = meter.take(1, now)
        if not meter.bound:
            return owed_s
        name = ip if ip in self._ips else DEFAULT
        self._accepted.setdefault(name, self._rate()).add(1, now)
        return 0.0

    def rows(self, now: float) -> Iterator[tuple[str, float]]:
        """For figures: address → connections per second, of those that have a quota and made one since it is set;
        `DEFAULT`: of all that share one."""
        for ip, rate in list(self._accepted.items()):
            yield ip, rate.per_second(now)

    def _meter_of(self, ip: str, now: float) -> Meter | None:
        found = self._ips.get(ip)
        if found is not None:
            return found
        bound = decide_ip(self._of_ips, ip)
        if bound is None:
            return None
        if len(self._ips) >= MAX_IPS:
            self._ips = {each: meter for each, meter in self._ips.items() if not meter.is_as_new(now)}
            self._accepted = {each: rate for each, rate in self._accepted.items() if each in self._ips}
        if len(self._ips) >= MAX_IPS and QuotaEntity(ip=ip) not in self._of_ips:
            ip = DEFAULT
        return self._ips.setdefault(ip, self._meter(bound))

    def _rate(self) -> SampledRate:
        return SampledRate(self._windows.size_s, self._windows.number)

    def _meter(self, bound: float) -> Meter:
        return Meter(bound, self._windows.saved_s, self._windows.owed_s)
