"""The faults that `strandline doctor --cluster` looks for: one row each, over facts that were gathered before. Pure.

A check returns what is wrong and where, "" where nothing is; Unknown where its facts are not known; Advice where its
fault is only near. A fault stops somebody or loses something, now or soon; advice is about what would make the next
failure worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.broker.admin import remedies
from strandline.cli.check_findings import Advice, Found, Unknown, none_of
from strandline.cli.cluster_facts import MIN_ISR, THROTTLED, UNCLEAN, ClusterFacts, problems_told
from strandline.cli.cluster_picture import named
from strandline.cli.cluster_problems import is_understood
from strandline.cli.disk_checks import FULL, directories, disks
from strandline.cli.group_checks import growing_lag, restless_groups
from strandline.cli.layout_checks import each_partition, leaders, spread
from strandline.cli.wording import counted, lasting
from strandline.protocol.types import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    from strandline.client.metadata import PartitionView

LARGEST_SKEW_MS = 1_000
WANTED_COPIES = 3
ALIKE = (
    *("auto.create.topics.enable", "compression.type", "default.replication.factor", "log.cleanup.policy"),
    *("log.retention.bytes", "log.retention.ms", "message.max.bytes", "min.insync.replicas", "num.partitions"),
    *("offsets.topic.num.partitions", "offsets.topic.replication.factor", "unclean.leader.election.enable"),
)
"""Keys of brokers that mean the same cluster-wide: who leads, or is asked, decides which value counts."""


class Check(NamedTuple):
    """kinds, subject: of the problems that brokers tell, those of these kinds, or whose subject ends so, are the same
    fault: they know since when. Of kinds `found_by` tells what `find` does not see."""

    name: str
    is_fault: bool
    find: Callable[[ClusterFacts], Found]
    remedy: str
    kinds: tuple[str, ...] = ()
    subject: str = ""

    def is_told_by(self, problem: Mapping[str, Any]) -> bool:
        return problem["kind"] in self.kinds or (self.subject != "" and problem["subject"].endswith(self.subject))


# --- Brokers ---------------------------------------------------------------------------------------------------------


def zookeeper(facts: ClusterFacts) -> str:
    """Where nobody tells of it, it is at fault most likely if no broker acts as the controller."""
    told = {each["broker"]: each["what"] for each in problems_told(facts) if each["kind"] == "zookeeper"}
    if told:
        return f"{_brokers(told)}: {next(iter(told.values()))}"
    if facts.is_led or set(_who_tell(facts, "problems")) >= set(facts.brokers):
        return ""
    return "no broker acts as the controller, and not every broker tells whether ZooKeeper is there"


def controller(facts: ClusterFacts) -> Found:
    if not facts.is_led:
        return Unknown("see ZooKeeper") if zookeeper(facts) else "no broker acts as it"
    was, now = facts.before.controller, facts.after.controller
    if now == NO_BROKER:
        return "there is none"
    if was not in (NO_BROKER, now):
        return f"it changed from broker {was} to broker {now} within {lasting(facts.lasted_s)}"
    told = {each: status.get("controller_id", now) for each, status in facts.statuses.items()}
    others = [
        f"broker {each} {'knows of none' if who == NO_BROKER else f'takes {who} for it'}"
        for each, who in told.items()
        if who != now
    ]
    return f"it is broker {now}, but {', '.join(others)}" if others else ""


def unanswering(facts: ClusterFacts) -> str:
    """Who holds replicas is meant to run."""
    held = Counter(each for _, view in each_partition(facts) for each in view.replicas)
    gone = [
        f"broker {each}, which holds {counted(held[each], 'replica')}, does not run, or has lost ZooKeeper"
        for each in sorted(held)
        if each not in facts.brokers
    ]
    unheard = [f"broker {each} at {_address(facts, each)}: {why}" for each, why in facts.unheard.items()]
    return "; ".join(gone + unheard)


def _address(facts: ClusterFacts, broker_id: int) -> str:
    return str(facts.brokers[broker_id].address) if broker_id in facts.brokers else "an address that is not known"


def addresses(facts: ClusterFacts) -> str:
    counts = Counter(each.address for each in facts.brokers.values())
    twice = [str(address) for address, count in counts.items() if count > 1]
    if twice:
        return f"{named(twice)} is advertised by more than one broker"
    here = [each for each, broker in facts.brokers.items() if _is_loopback(broker.address.host)]
    if here and len(here) < len(facts.brokers):
        return f"of {_brokers(here)} it is a loopback address, by which everybody reaches his own machine only"
    return ""


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def unready(facts: ClusterFacts) -> Found:
    found = []
    for broker_id, status in facts.statuses.items():
        waits = status.get("waits")
        if isinstance(waits, list) and waits:
            found.append(f"broker {broker_id}: {', '.join(map(str, waits))}")
    return "; ".join(found) or _unless_untold(facts, _who_tell(facts, "waits"))


def _who_tell(facts: ClusterFacts, field: str) -> list[int]:
    """Who says something of it: what was named with --admin may be no broker's own port."""
    return [each for each, status in facts.statuses.items() if isinstance(status.get(field), list)]


def versions(facts: ClusterFacts) -> Found:
    found: dict[str, list[int]] = {}
    for broker_id, status in facts.statuses.items():
        told = status.get("versions")
        if isinstance(told, dict) and "strandline" in told:
            found.setdefault(str(told["strandline"]), []).append(broker_id)
    if len(found) > 1:
        return ", ".join(f"{_brokers(each)}: {version}" for version, each in found.items())
    return _unless_untold(facts, found.get(next(iter(found), ""), ()))


def clocks(facts: ClusterFacts) -> Found:
    """What the time of asking may have made of a difference is none."""
    if len(facts.brokers) < 2:
        return ""
    slow = {each: skew for each, skew in facts.skews.items() if skew.unsure_ms > LARGEST_SKEW_MS / 2}
    if facts.skews:
        first = min(facts.skews, key=lambda each: sum(facts.skews[each]))
        last = max(facts.skews, key=lambda each: facts.skews[each].ahead_ms - facts.skews[each].unsure_ms)
        unsure_ms = facts.skews[first].unsure_ms + facts.skews[last].unsure_ms
        apart_ms = facts.skews[last].ahead_ms - facts.skews[first].ahead_ms
        if first != last and apart_ms > LARGEST_SKEW_MS + unsure_ms:
            return f"broker {last} is {apart_ms / 1000:.1f} s ahead of broker {first}"
    late = {
        each: f"its answer took {2 * skew.unsure_ms / 1000:.1f} s, too long to compare" for each, skew in slow.items()
    }
    return _unless_untold(facts, facts.skews.keys() - slow, late)


def _unless_untold(
    facts: ClusterFacts, told: Collection[int] | None = None, why: Mapping[int, str] = MappingProxyType({})
) -> Found:
    """Nothing was found in what admin ports say: that is well where every broker's says it. told: who does, where not
    every answer has it; why: of others that answered, what is wrong with that."""
    asked = facts.statuses if told is None else told
    reasons = {**facts.untold, **why}
    missing = {each: reasons.get(each, "its answer lacks it") for each in facts.brokers if each not in asked}
    return none_of(missing, facts) if missing else ""


def configurations(facts: ClusterFacts) -> Found:
    differing = []
    for key in ALIKE:
        values = {each: configs[key] for each, configs in facts.broker_configs.items() if key in configs}
        if len(set(values.values())) > 1:
            of_value: dict[str | None, list[int]] = {}
            for each, value in values.items():
                of_value.setdefault(value, []).append(each)
            told = ", ".join(f"{value} on {_brokers(each)}" for value, each in of_value.items())
            differing.append(f"{key} ({told})")
    if differing:
        return named(differing)
    why = {**facts.broker_configs_untold, **facts.unheard}
    missing = {each: why.get(each, "no answer") for each in facts.brokers if each not in facts.broker_configs}
    return none_of(missing, facts) if missing else ""


# --- Partitions ------------------------------------------------------------------------------------------------------


def _min_isr(facts: ClusterFacts, topic: str) -> int:
    value = facts.topic_configs.get(topic, {}).get(MIN_ISR)
    return int(value) if value else 1


def offline(facts: ClusterFacts) -> str:
    return named(tp for tp, view in each_partition(facts) if view.leader == NO_BROKER)


def under_min_isr(facts: ClusterFacts) -> Found:
    """As leaders take it: a minimum that is more than the replicas is met by all of them."""
    found = named(
        tp
        for tp, view in each_partition(facts)
        if view.leader != NO_BROKER
        and len(view.in_sync_replicas) < min(_min_isr(facts, tp.topic), len(view.replicas) - _being_added(facts, tp))
    )
    return found or _unless_configs_untold(facts)


def _being_added(facts: ClusterFacts, tp: TopicPartition) -> int:
    return len(facts.ongoing[tp].adding) if tp in facts.ongoing else 0


def _unless_configs_untold(facts: ClusterFacts) -> Found:
    missing: dict[str, list[str]] = {}
    for name in sorted(facts.topics.keys() - facts.topic_configs.keys()):
        missing.setdefault(facts.topic_configs_untold.get(name, "no answer"), []).append(name)
    texts = [f"nobody tells the configuration of {named(names)}: {why}" for why, names in missing.items()]
    return Unknown("; ".join(texts)) if texts else ""


def under_replicated(facts: ClusterFacts) -> Found:
    """What is being filled for the first time is no fault; it is the rest of a reassignment."""
    lacking = {
        tp: missing
        for tp, view in each_partition(facts)
        if view.leader != NO_BROKER and (missing := _missing(facts, tp, view))
    }
    if not lacking:
        return ""
    if facts.ongoing_untold:
        return Unknown(f"{named(lacking)} may be so, or on the move: {facts.ongoing_untold}")
    by_broker = Counter(broker_id for missing in lacking.values() for broker_id in missing)
    worst = ", ".join(f"broker {each} with {count}" for each, count in by_broker.most_common(3))
    return f"{named(lacking)}; not in sync: {worst}"


def _missing(facts: ClusterFacts, tp: TopicPartition, view: PartitionView) -> list[int]:
    adding = facts.ongoing[tp].adding if tp in facts.ongoing else ()
    return [each for each in view.replicas if each not in view.in_sync_replicas and each not in adding]


def refused(facts: ClusterFacts) -> str:
    """By what the controller knows, and by what brokers tell of logs that failed later; the first ones have a line
    each there, the others of a broker share one."""
    found = {(str(tp), each): why for tp, view in each_partition(facts) for each, why in view.refused_replicas.items()}
    for problem in problems_told(facts):
        if problem["kind"] == "log":
            found.setdefault((problem["where"], problem["broker"]), problem["what"])
    text = named((f"{where} on broker {each}: {why}" for (where, each), why in found.items()), most=3)
    more = [f"broker {each['broker']}: {each['what']}" for each in problems_told(facts) if each["kind"] == "more logs"]
    return "; ".join([*([text] if text else ()), *more])


def racks(facts: ClusterFacts) -> str:
    of_broker = {each: broker.rack for each, broker in facts.brokers.items()}
    without = [each for each, rack in of_broker.items() if rack is None]
    if len(without) == len(of_broker):
        return ""
    if without:
        return f"no broker.rack for {_brokers(without)}, others have one, so that nobody's counts"
    together = [
        tp
        for tp, view in each_partition(facts)
        if len(view.replicas) > 1 and len({of_broker.get(each, each) for each in view.replicas}) == 1
    ]
    return f"all replicas on one rack: {named(together)}" if together and len(set(of_broker.values())) > 1 else ""


def waiting_for_the_dead(facts: ClusterFacts) -> Found:
    """A reassignment ends once its whole target is in sync, also those who were replicas before."""
    if facts.ongoing_untold:
        return Unknown(f"what is under way is not known: {facts.ongoing_untold}")
    return named(
        f"{tp} waits for broker {each}"
        for tp, moving in facts.ongoing.items()
        for each in moving.target
        if each not in facts.brokers
    )


# --- What is configured for topics -----------------------------------------------------------------------------------


def _copies(facts: ClusterFacts, *, internal: bool) -> dict[str, int]:
    """Topic → the fewest replicas of its partitions."""
    return {
        name: min((len(view.replicas) for view in topic.partitions.values()), default=0)
        for name, topic in sorted(facts.topics.items())
        if topic.partitions and topic.is_internal == internal
    }


def single_copies(facts: ClusterFacts) -> str:
    return named(name for name, copies in _copies(facts, internal=False).items() if copies == 1)


def internal_copies(facts: ClusterFacts) -> Found:
    """With a single one the next failure stops all groups."""
    wanted = min(WANTED_COPIES, len(facts.brokers))
    short = {name: copies for name, copies in _copies(facts, internal=True).items() if copies < wanted}
    text = named(f"{name} has {counted(copies, 'replica')}" for name, copies in short.items())
    return Advice(text) if short and min(short.values()) > 1 else text


def strict_minimum(facts: ClusterFacts) -> Found:
    found = [name for name, copies in _copies(facts, internal=False).items() if 1 < copies <= _min_isr(facts, name)]
    return named(found) or _unless_configs_untold(facts)


def loose_minimum(facts: ClusterFacts) -> Found:
    copies = _copies(facts, internal=False)
    found = [name for name in copies if name in facts.topic_configs and copies[name] > 1 and _min_isr(facts, name) == 1]
    return named(found) or _unless_configs_untold(facts)


def unclean(facts: ClusterFacts) -> Found:
    found = [name for name, configs in sorted(facts.topic_configs.items()) if configs.get(UNCLEAN) == "true"]
    return named(found) or _unless_configs_untold(facts)


def throttles(facts: ClusterFacts) -> Found:
    if facts.ongoing:
        return ""
    found = [
        f"{name} ({', '.join(keys)})"
        for name, configs in sorted(facts.topic_configs.items())
        if (keys := list(filter(configs.get, THROTTLED)))
    ]
    if found and facts.ongoing_untold:
        return Unknown(f"{named(found)} may be throttled for nothing, or for what moves: {facts.ongoing_untold}")
    return named(found) or _unless_configs_untold(facts)


# --- What brokers tell -----------------------------------------------------------------------------------------------


def found_by(check: Check, facts: ClusterFacts) -> Found:
    """What the check finds; where that is nothing, or unknown, what brokers tell of its kinds: another source that does
    not see a fault makes none of it well."""
    found = check.find(facts)
    if found and not isinstance(found, Unknown):
        return found
    return _as_told([each for each in problems_told(facts) if each["kind"] in check.kinds]) or found


def _as_told(problems: Collection[Mapping[str, Any]]) -> Found:
    """A fault if any is an error, else advice; "" where there are none."""
    text = named(
        (f"broker {each['broker']}, {each['where']}: {each['what']} ({each['remedy']})" for each in problems), most=3
    )
    return text if not problems or any(each["level"] == "error" for each in problems) else Advice(text)


def told(facts: ClusterFacts) -> Found:
    """What no other check looks for: only the broker knows it."""
    looked_for = {kind for check in CLUSTER_CHECKS if check.find is not told for kind in check.kinds}
    others = [each for each in problems_told(facts) if each["kind"] not in looked_for]
    if not others:
        tell = [each for each, status in facts.statuses.items() if is_understood(status)]
        why = {each: "it tells problems in another form" for each in _who_tell(facts, "problems") if each not in tell}
        return _unless_untold(facts, tell, why)
    return _as_told(others)


def _brokers(ids: Iterable[int]) -> str:
    listed = sorted(ids)
    return f"broker {listed[0]}" if len(listed) == 1 else f"brokers {', '.join(map(str, listed))}"


CLUSTER_CHECKS = (
    Check(
        "ZooKeeper",
        True,
        zookeeper,
        "start it, or mend the way to it (zookeeper.connect); strandline doctor -z HOST:PORT asks it",
        kinds=("zookeeper",),
    ),
    Check(
        "controller",
        True,
        controller,
        "ask ZooKeeper (strandline doctor -z HOST:PORT), look at the brokers' logs",
        kinds=("controller",),
    ),
    Check(
        "brokers answer",
        True,
        unanswering,
        "start it (gone for good: broker-decommission), or mend its advertised.listeners",
        subject=" is gone",
    ),
    Check("advertised addresses", True, addresses, "give each broker advertised.listeners that all clients can reach"),
    Check("brokers are ready", True, unready, "wait, and if it stays see that broker's log"),
    Check(
        "log directories",
        True,
        directories,
        "replace the disk and restart the broker: it fetches what it lacks",
        kinds=("directory",),
    ),
    Check(
        "disks",
        True,
        disks,
        remedies.MAKE_ROOM,
        kinds=FULL,
    ),
    Check("clocks", True, clocks, "have NTP set them: retention and timestamps go by them"),
    Check(
        "offline partitions",
        True,
        offline,
        remedies.RECOVER,
        kinds=("leaderless",),
    ),
    Check(
        "under min.insync.replicas",
        True,
        under_min_isr,
        f"{remedies.REFUSED}: start the missing brokers",
        kinds=("under min ISR",),
    ),
    Check(
        "under-replicated partitions",
        True,
        under_replicated,
        "start those brokers, or see what slows them down",
        kinds=("under-replicated", "under min ISR"),
    ),
    Check(
        "refused replicas",
        True,
        refused,
        "mend what the message names, then restart that broker",
        kinds=("log", "more logs"),
    ),
    Check("told by brokers", True, told, "do as it says there"),
    Check("reassignments", True, waiting_for_the_dead, "start that broker, or strandline reassign cancel --all"),
    Check("internal topics", True, internal_copies, "strandline reassign generate -t TOPIC --replication-factor 3"),
    Check("versions", False, versions, "end the upgrade: restart the older ones, one after the other"),
    Check("configurations", False, configurations, "make them alike, in each file or with configs alter --all-brokers"),
    Check("leaders", False, leaders, "strandline elect-leaders --all"),
    Check("spread of replicas", False, spread, "strandline reassign generate --all; strandline load for the load"),
    Check("racks", False, racks, "set broker.rack on all, then strandline reassign generate --all"),
    Check("replication factor 1", False, single_copies, "strandline reassign generate -t TOPIC --replication-factor 3"),
    Check(
        "min.insync.replicas = replicas",
        False,
        strict_minimum,
        "one broker less stops writes: add a replica",
    ),
    Check("min.insync.replicas 1", False, loose_minimum, "acks=all may be one copy only: set 2"),
    Check("unclean elections", False, unclean, f"a leader may lose what was acknowledged: set {UNCLEAN}=false"),
    Check(
        "throttles",
        False,
        throttles,
        "nothing is moving: configs alter --topic NAME --delete KEY, or reassign verify FILE with the plan",
    ),
    Check("growing lag", False, growing_lag, "add consumers, or see what they wait for: strandline groups describe"),
    Check("restless groups", False, restless_groups, "members come and go: see their logs, raise max.poll.interval.ms"),
)
