"""How much of a cluster's load lies on each broker, made of several indicators in different units. Pure.

With M_x(n) the indicator x of broker n, P_x its weight, N the number of brokers:

    D_x(n) = M_x(n) / Σ M_x           the broker's share of the indicator
    B(n)   = Σ P_x · D_x(n)           its load
    D(n)   = B(n) / Σ B               its share of the load; 1/N is even
    r(n)   = D(n) · N − 1             its deviation: 0.1 is a tenth too much
    σ      = √(Σ (D(n) − 1/N)² / N)   the deviation of all shares

A deviation is too large beyond a threshold r, and σ beyond r/N, where it is when every broker deviates by r: with four
brokers and 10 % that is 0.025. Whoever looks for the cause of followers that lag looks at the brokers in the order of
D(n), the largest first.

An indicator whose sum is 0 tells nothing, one that is next to nothing on every broker tells only who happened to be
looked at while it did something, and one that is not known of every broker would count against those of whom it is:
they are left out, and so is what has no weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

ROUNDING = 1e-9
"""What lies at the threshold is not beyond it, whatever the last digit of a sum is."""

Readings = Mapping[str, Mapping[int, float | None]]
"""Indicator → broker → figure, in whatever unit; None where it is not known."""


@dataclass(frozen=True, slots=True)
class Load:
    """Of brokers whose figures are known. readings: those that count, weights likewise; sums: over all brokers.
    left_out: indicator → why it does not count. loads: B(n); shares: D(n); deviations: r(n)."""

    readings: Mapping[str, Mapping[int, float]]
    weights: Mapping[str, float]
    sums: Mapping[str, float]
    left_out: Mapping[str, str]
    loads: Mapping[int, float]
    shares: Mapping[int, float]
    deviations: Mapping[int, float]
    sigma: float
    threshold: float

    @property
    def sigma_bound(self) -> float:
        """How large σ may be."""
        return self.threshold / len(self.shares)

    @property
    def uneven(self) -> list[int]:
        """The brokers beyond the threshold, the farthest first."""
        found = [each for each, deviation in self.deviations.items() if is_beyond(deviation, self.threshold)]
        return sorted(found, key=lambda each: (-abs(self.deviations[each]), each))

    @property
    def is_even(self) -> bool:
        return not self.uneven and self.sigma <= self.sigma_bound + ROUNDING

    @property
    def heaviest_first(self) -> list[int]:
        return sorted(self.shares, key=lambda each: (-round(self.shares[each], 9), each))

    def share_of(self, indicator: str, broker_id: int) -> float:
        """D_x(n)."""
        return self.readings[indicator][broker_id] / self.sums[indicator]


def is_beyond(deviation: float, threshold: float) -> bool:
    return abs(deviation) > threshold + ROUNDING


def load_of(
    readings: Readings,
    weights: Mapping[str, float],
    threshold: float,
    idle_below: Mapping[str, float] = MappingProxyType({}),
) -> Load:
    """weights: 1 where none is given. idle_below: what is less on every broker counts nowhere, 0 where none is given.
    ValueError: no broker, or no indicator is left to go by."""
    brokers = sorted({broker_id for of_each in readings.values() for broker_id in of_each})
    kept: dict[str, Mapping[int, float]] = {}
    left_out: dict[str, str] = {}
    for name, of_each in readings.items():
        known = {each: figure for each in brokers if (figure := of_each.get(each)) is not None}
        if not weights.get(name, 1.0):
            left_out[name] = "it has no weight"
        elif not known:
            left_out[name] = "no broker tells it"
        elif len(known) < len(brokers):
            silent = ", ".join(str(each) for each in brokers if each not in known)
            left_out[name] = f"not told by {silent}"
        elif not sum(known.values()):
            left_out[name] = "0 everywhere"
        elif max(known.values()) < idle_below.get(name, 0.0):
            left_out[name] = "idle everywhere"
        else:
            kept[name] = known
    if not kept:
        raise ValueError("no indicator is left to go by")
    sums = {name: sum(of_each.values()) for name, of_each in kept.items()}
    used = {name: weights.get(name, 1.0) for name in kept}
    loads = {each: sum(used[name] * kept[name][each] / sums[name] for name in kept) for each in brokers}
    return Load(kept, used, sums, left_out, loads, *_spread(loads), threshold)


def _spread(loads: Mapping[int, float]) -> tuple[dict[int, float], dict[int, float], float]:
    """Shares, deviations, σ."""
    whole, even = sum(loads.values()), 1 / len(loads)
    shares = {broker_id: load / whole for broker_id, load in loads.items()}
    sigma = math.sqrt(sum((share - even) ** 2 for share in shares.values()) * even)
    return shares, deviations_of(loads), sigma


def deviations_of(loads: Mapping[int, float]) -> dict[int, float]:
    """r(n) of each broker."""
    mean = sum(loads.values()) / len(loads)
    return {broker_id: load / mean - 1 for broker_id, load in loads.items()}
