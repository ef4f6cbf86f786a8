"""The faults of disks that `strandline doctor --cluster` looks for, by two looks at them. Pure."""

from __future__ import annotations

from strandline.broker.admin import remedies
from strandline.cli.check_findings import Advice, Found, none_of
from strandline.cli.cluster_facts import ClusterFacts, problems_told
from strandline.cli.disk_growth import ends_in_time
from strandline.cli.wording import lasting, sized

WATCHED_PART = 0.5
"""Of a volume: while more is left its growth alarms nobody, as in the rules for Prometheus."""
DAY_S = 86_400
FULL = ("full", "nearly full")
"""What brokers call a volume on which room must be made."""


def directories(facts: ClusterFacts) -> Found:
    """By their brokers' answers, and by what others tell at their admin ports."""
    found = {
        (broker_id, each.path): str(each.error)
        for broker_id, of_broker in facts.after.directories.items()
        for each in of_broker
        if each.error
    }
    for problem in problems_told(facts):
        if problem["kind"] == "directory":
            found.setdefault((problem["broker"], problem["where"]), f"{problem['where']}: {problem['what']}")
    text = "; ".join(f"broker {broker_id}: {why}" for (broker_id, _), why in found.items())
    return text if text or not facts.unheard else none_of(facts.unheard, facts)


def disks(facts: ClusterFacts) -> Found:
    """What is nearly full, here or to its broker, which calls it so until there is more room again; as advice, what may
    be within a day: a few seconds say little of a day, but whose volume is more than half full had better look."""
    found, soon = [], []
    full = {(each["broker"], each["where"]): each["what"] for each in problems_told(facts) if each["kind"] in FULL}
    lasted_s = max(facts.after.disks_at_s - facts.before.disks_at_s, 1.0)
    missing = {each: facts.unheard.get(each, "no answer") for each in facts.brokers}
    for broker_id, of_broker in facts.after.directories.items():
        missing.pop(broker_id, None)
        earlier = {each.path: each for each in facts.before.directories.get(broker_id, ())}
        for each in of_broker:
            if each.total_bytes <= 0 or each.usable_bytes < 0:
                if each.error is None:
                    missing[broker_id] = f"it does not say how large the volume of {each.path} is"
                continue
            where = f"{each.path} of broker {broker_id} has {sized(each.usable_bytes)} left"
            was = earlier.get(each.path, each)
            per_s = (was.usable_bytes - each.usable_bytes) / lasted_s if was.usable_bytes >= 0 else 0
            if each.usable_bytes < remedies.NEARLY_FULL_PART * each.total_bytes or (broker_id, each.path) in full:
                full.pop((broker_id, each.path), None)
                found.append(where)
            elif (
                per_s > 0
                and each.usable_bytes < min(WATCHED_PART * each.total_bytes, DAY_S * per_s)
                and not ends_in_time(was, each, facts.topic_configs)
            ):
                soon.append(f"{where}, full in {lasting(each.usable_bytes / per_s)} should {sized(per_s)}/s go on")
    # What brokers tell of those whose size is not known.
    found += [f"{path} of broker {broker_id}: {what}" for (broker_id, path), what in full.items()]
    if found:
        return "; ".join(found + soon)
    if soon:
        return Advice("; ".join(soon))
    return none_of(missing, facts) if missing else ""
