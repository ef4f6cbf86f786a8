"""What a check of a cluster finds: "" where nothing is wrong, else what is, and where, as text; or one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from strandline.cli.cluster_facts import ClusterFacts


class Unknown(NamedTuple):
    why: str


class Advice(NamedTuple):
    """What a check of faults found that is none yet."""

    text: str


Found = str | Unknown | Advice


def none_of(missing: Mapping[int, str], facts: ClusterFacts) -> Unknown:
    """missing: who does not tell, and why."""
    who = "no broker tells" if set(missing) >= set(facts.brokers) else "not seen everywhere"
    return Unknown(f"{who}: {'; '.join(f'broker {each}: {why}' for each, why in missing.items())}")
