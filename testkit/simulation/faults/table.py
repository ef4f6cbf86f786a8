"""All kinds of faults, by name; scripts that are drawn of them, and whether one can be done."""

from __future__ import annotations

import random
from collections.abc import Iterable

from strandline.testkit.simulation.faults import of_brokers, of_damage, of_disks, of_networks, of_zookeeper
from strandline.testkit.simulation.faults.striking import FaultKind
from strandline.testkit.simulation.options import Options
from strandline.testkit.simulation.script import Fault, NotAFault

KINDS: dict[str, FaultKind] = {
    **of_brokers.KINDS,
    **of_networks.KINDS,
    **of_disks.KINDS,
    **of_damage.KINDS,
    **of_zookeeper.KINDS,
}


def draw_script(options: Options) -> tuple[Fault, ...]:
    """The faults of a run whose length and chances are drawn."""
    chance, ways = random.Random(f"{options.seed}/script"), random.Random(f"{options.seed}/ways")
    names, weights = list(options.weights), list(options.weights.values())
    count = round(options.faults_per_minute * options.length_s / 60)
    faults = []
    for _ in range(count):
        name = chance.choices(names, weights)[0]
        broker, other = map(str, chance.sample(range(1, options.brokers + 1), 2))
        kind = KINDS[name]
        target = chance.choice(kind.targets).translate({ord("1"): broker, ord("2"): other})
        at_s, seconds = chance.uniform(0, options.length_s), chance.uniform(0.1, options.longest_fault_s)
        how = ways.choice(kind.ways) if kind.ways else ""
        faults.append(Fault(round(at_s, 3), name, target, round(seconds, 2), how))
    return tuple(sorted(faults))


def check_script(script: Iterable[Fault], brokers: int) -> None:
    """NotAFault unless each can be done to a cluster of so many brokers."""
    for fault in script:
        if wrong := _wrong_with(fault, brokers):
            raise NotAFault(f"'{str(fault).strip()}' of the script: {wrong}")


def _wrong_with(fault: Fault, brokers: int) -> str:
    """Empty: nothing."""
    kind = KINDS.get(fault.kind)
    if kind is None:
        return f"there is no fault '{fault.kind}'; those are {', '.join(KINDS)}"
    named = [int(each) for each in fault.target.replace("-", ">").split(">") if each.isdigit()]
    unknown = [broker for broker in named if not 1 <= broker <= brokers]
    if unknown:
        return f"there is no broker {unknown[0]}, the last one is {brokers}"
    sign = "-" if "-" in fault.target else ">"
    form = {0: fault.target, 1: "1", 2: f"1{sign}2"}[len(dict.fromkeys(named))]
    if form not in kind.targets:
        return f"it is done to {targets_text(kind)}"
    if fault.how and fault.how not in kind.ways:
        return f"'{fault.how}' says nothing to '{fault.kind}'" + (f", but {', '.join(kind.ways)}" if kind.ways else "")
    return ""


def targets_text(kind: FaultKind) -> str:
    """What a fault of that kind may be done to, in words."""
    return " or ".join(_FORMS[each] for each in dict.fromkeys(kind.targets))


_FORMS = {
    "1": "one broker, by its number",
    "1>2": "a link, such as 1>2",
    "1-2": "a link, such as 1-2",
    "all": "all",
    "controller": "the controller",
    "": "nobody: it names no target",
}
