"""The faults of groups that `strandline doctor --cluster` looks for, by two looks at them. Pure."""

from __future__ import annotations

from strandline.cli.check_findings import Found, Unknown
from strandline.cli.cluster_facts import ClusterFacts
from strandline.cli.cluster_picture import named
from strandline.cli.wording import lasting

GROWN_LAG = 1_000
"""Records: less is what lies between two looks of any busy topic."""


def growing_lag(facts: ClusterFacts) -> Found:
    """More than half of what was written meanwhile was not read: who commits every few seconds and keeps up seems to
    be behind by less than that."""
    found = []
    for name, now in sorted(facts.after.groups.items()):
        was = facts.before.groups.get(name)
        if was is None or was.lag is None or now.lag is None:
            continue
        written = now.end - was.end
        if now.lag - was.lag >= max(GROWN_LAG, written / 2) and now.lag > 1.1 * was.lag:
            within = lasting(facts.after.groups_at_s - facts.before.groups_at_s)
            found.append(f"{name} from {was.lag} to {now.lag} records within {within}")
    if found:
        return named(found)
    looks = (facts.before, facts.after)
    untold = {name: each.lag_untold for look in looks for name, each in look.groups.items() if each.lag_untold}
    if untold:
        return Unknown(named((f"{name}: {why}" for name, why in sorted(untold.items())), most=3))
    return _unless_groups_untold(facts)


def _unless_groups_untold(facts: ClusterFacts) -> Found:
    why = facts.before.groups_untold or facts.after.groups_untold
    return Unknown(f"groups may be missing: {why}") if why else ""


def restless_groups(facts: ClusterFacts) -> Found:
    def is_restless(name: str) -> bool:
        looks = (look.groups.get(name) for look in (facts.before, facts.after))
        return all(each is not None and each.state.endswith("Rebalance") for each in looks)

    found = named(name for name in sorted(facts.after.groups) if is_restless(name))
    return found or _unless_groups_untold(facts)
