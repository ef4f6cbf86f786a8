"""The time before a client has reached its cluster: how long calls wait for a first answer, and what they say then.

Until any broker has answered, a wrong address is the likeliest cause of silence, and nobody learns of that by waiting.
So calls end `bootstrap_timeout_ms` after the first attempt, and name each address and why it failed. Once the cluster
was reached, brokers that are away are waited for as each call says. A broker has answered when it tells its versions,
with which each connection begins: what it is asked next may have to wait because of a quota. Pure: time is in seconds,
and an argument.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from strandline.client.errors import ClientError, NoBrokerReachable
from strandline.runtime.network import Address

_REMEDY = "is a broker running there, and is bootstrap_servers right?"


class Bootstrap:
    """Of one client. It goes on trying in the background when the time is over: a later call may find the cluster."""

    def __init__(self, addresses: Sequence[Address], timeout_ms: float) -> None:
        self.was_reached = False
        self.failures = 0
        """Rounds that all addresses of `bootstrap_servers` have failed in."""
        self._addresses = tuple(dict.fromkeys(addresses))
        self._timeout_ms = timeout_ms
        self._began: float | None = None
        self._causes: dict[Address, Exception] = {}

    def begin(self, now: float) -> None:
        """Somebody wants an answer. The first time counts."""
        if self._began is None:
            self._began = now

    def answered(self) -> None:
        """By a broker: from now on there is a cluster, whatever becomes of it."""
        self.was_reached = True
        self._causes.clear()

    def failed(self, address: Address, error: Exception) -> None:
        self._causes[address] = error

    def round_failed(self) -> None:
        """Nobody has answered."""
        self.failures += 1

    def ends_at(self, now: float) -> float:
        """When who waits from now on is told; infinite once the cluster was reached."""
        if self.was_reached:
            return math.inf
        return (now if self._began is None else self._began) + self._timeout_ms / 1000

    def is_over(self, now: float) -> bool:
        return now >= self.ends_at(now)

    def attempt_ms(self, limit_ms: float) -> float:
        """How long one address may take: each shall have been tried before the time is over."""
        return limit_ms if self.was_reached else min(limit_ms, self._timeout_ms / len(self._addresses))

    def error(self) -> NoBrokerReachable:
        """For whoever has waited."""
        causes = {address: self._causes.get(address) for address in self._addresses}
        return unreachable(f"no broker has answered within {self._timeout_ms:g} ms (bootstrap_timeout_ms)", causes)


class Reaching:
    """What one call, of many that each wait for a moment, learns of a cluster that was not reached yet: at once when
    the time is over; where it was over before, how the next attempt ended. So who repeats a call that fails has another
    attempt each time, and does not spin."""

    def __init__(self, bootstrap: Bootstrap, now: float) -> None:
        self._bootstrap = bootstrap
        self._was_over = bootstrap.is_over(now)
        self._failures = bootstrap.failures

    def wait_until(self, now: float, deadline: float) -> float:
        """At most so long before it is checked."""
        return deadline if self._was_over else min(deadline, self._bootstrap.ends_at(now))

    def check(self, now: float, deadline: float) -> None:
        """NoBrokerReachable where that is to be told."""
        if not self._bootstrap.is_over(now):
            return
        if not self._was_over or self._bootstrap.failures > self._failures or now >= deadline:
            raise self._bootstrap.error()


def unreachable(text: str, causes: Mapping[Address, Exception | None]) -> NoBrokerReachable:
    """With each address and why it failed, in the order of the addresses: the same text after each attempt."""
    listed = "; ".join(f"{address}: {_why(causes[address])}" for address in sorted(causes))
    error = NoBrokerReachable(f"{text}: {listed}; {_REMEDY}")
    error.is_silence = any(isinstance(each, ClientError) and each.is_silence for each in causes.values())
    return error


def _why(error: Exception | None) -> str:
    if error is None:
        return "no answer"
    return (error.why if isinstance(error, ClientError) else "") or str(error)
