"""Our assignors beside Kafka's own classes: what members say is read there, and what they get is read here.

Range and round-robin give exactly the same. Of the sticky ones, where all subscribe to the same topics, everything is
the same that they promise: how even it is, how much stays where it was, how much waits until its owner has given it up.
Which of two equal choices is taken may differ; it is the leader's alone.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from strandline.client.groups.assignors import ASSIGNORS, Assignments, RebalanceProtocol
from strandline.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_sticky_data,
    decode_subscription,
    encode_subscription,
)
from strandline.protocol.types import TopicPartition

GROUPS = 120
"""For each assignor."""
PROGRAM = Path(__file__).with_name("Assignments.java")

Case = tuple[str, dict[str, Subscription], dict[str, int]]
"""Assignor, members, partitions of each topic."""


def some_group(name: str, seed: int) -> Case:
    """In half of them all subscriptions are equal. Members have what a former generation gave them, without those who
    are new, and with some who missed a generation."""
    rng = random.Random(f"{name}-{seed}")
    counts = {f"t{number}": rng.randint(1, 9) for number in range(rng.randint(1, 5))}
    all_topics = sorted(counts)
    everybody = [f"m{number}" for number in range(rng.randint(1, 9))]
    is_equal = seed % 2 == 0
    topics = {
        member: all_topics if is_equal else rng.sample(all_topics, rng.randint(1, len(all_topics)))
        for member in everybody
    }
    instances = {member: f"i{rng.randint(0, 999)}-{member}" if rng.random() < 0.3 else None for member in everybody}
    before = {member: Subscription(topics[member]) for member in everybody if rng.random() < 0.7}
    owned = ASSIGNORS[name].assign(before, counts) if before else {}
    gone = {member for member in owned if rng.random() < 0.2}
    members = {}
    for member in everybody:
        if member in gone and (members or member != everybody[-1]):
            continue
        said = Subscription(topics[member])
        if member in owned:
            generation = 3 if rng.random() < 0.9 else 2
            is_kept = ASSIGNORS[name].protocol is RebalanceProtocol.COOPERATIVE
            data = ASSIGNORS[name].user_data(owned[member], generation)
            said = Subscription(topics[member], data, owned[member] if is_kept else (), generation)
        members[member] = Subscription(
            said.topics, said.user_data, said.owned_partitions, said.generation_id, None, instances[member]
        )
    return name, members, counts


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [some_group(name, seed) for name in ASSIGNORS for seed in range(GROUPS)]


@pytest.fixture(scope="module")
def kafkas(
    cases: list[Case], java: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> list[Assignments]:
    """What Kafka's classes give, case by case; one virtual machine for all of them."""
    options = [java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    compiler = ["-cp", kafka_class_path, "org.eclipse.jdt.internal.compiler.batch.Main", "-17"]
    classes = tmp_path_factory.mktemp("classes")
    jars = ":".join(map(str, Path(kafka_class_path).parent.glob("*.jar")))
    built = subprocess.run(
        [*options, *compiler, "-cp", jars, "-d", str(classes), str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (classes / f"{PROGRAM.stem}.class").exists(), built.stderr
    lines = "".join(line_of(case) for case in cases)
    command = [*options, "-cp", f"{kafka_class_path}:{classes}", PROGRAM.stem]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = [line for line in done.stdout.splitlines() if "=" in line]
    assert len(answers) == len(cases)
    return [
        {
            member: sorted(decode_assignment(bytes.fromhex(data)).partitions)
            for member, data in (entry.split("=") for entry in answer.split(","))
        }
        for answer in answers
    ]


def line_of(case: Case) -> str:
    name, members, counts = case
    topics = ",".join(f"{topic}={count}" for topic, count in counts.items())
    said = ",".join(
        f"{member}={each.group_instance_id or '-'}={encode_subscription(each).hex()}"
        for member, each in members.items()
    )
    return f"{name}\t{topics}\t{said}\n"


def had_before(name: str, members: Mapping[str, Subscription]) -> dict[TopicPartition, set[str]]:
    """Who says that they have, or had, a partition."""
    found: dict[TopicPartition, set[str]] = {}
    for member, each in members.items():
        said = decode_subscription(encode_subscription(each))
        owned = said.owned_partitions
        if ASSIGNORS[name].protocol is RebalanceProtocol.EAGER and said.user_data:
            owned = decode_sticky_data(said.user_data)[0]
        for partition in owned:
            found.setdefault(partition, set()).add(member)
    return found


def kept(assigned: Assignments, before: Mapping[TopicPartition, set[str]]) -> int:
    return sum(member in before.get(partition, ()) for member, has in assigned.items() for partition in has)


def unevenness(assigned: Assignments) -> int:
    return sum(len(has) ** 2 for has in assigned.values())


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_round_robin_give_exactly_what_kafkas_give(name: str, cases, kafkas) -> None:
    for (assignor, members, counts), theirs in zip(cases, kafkas, strict=True):
        if assignor == name:
            assert ASSIGNORS[name].assign(members, counts) == theirs, (members, counts)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_sticky_is_as_even_as_kafkas_and_moves_no_more(name: str, cases, kafkas) -> None:
    """Where members subscribe to different topics both stop where no single move makes it more even, which need not be
    the same place: so all these groups are looked at together."""
    sums = {"ours": [0, 0], "theirs": [0, 0]}
    compared = 0
    for (assignor, members, counts), theirs in zip(cases, kafkas, strict=True):
        if assignor != name:
            continue
        ours, before = ASSIGNORS[name].assign(members, counts), had_before(name, members)
        if len({tuple(each.topics) for each in members.values()}) == 1:
            compared += 1
            assert kept(ours, before) == kept(theirs, before), (members, counts)
            assert sum(map(len, ours.values())) == sum(map(len, theirs.values()))
            assert name != "sticky" or unevenness(ours) == unevenness(theirs)
        for whose, assigned in (("ours", ours), ("theirs", theirs)):
            sums[whose][0] += kept(assigned, before)
            sums[whose][1] += unevenness(assigned)
    assert compared >= GROUPS / 2
    assert sums["ours"][0] >= sums["theirs"][0]
    assert sums["ours"][1] <= sums["theirs"][1] * 1.01
