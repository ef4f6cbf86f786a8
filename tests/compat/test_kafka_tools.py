"""Kafka's command line tools of 3.9 and 4 say about three brokers of ours what they say about a Kafka's.

The golden transcripts are of a real Kafka 3.9 (`make compat-golden`). What differs on purpose stands in DIFFERENCES,
with the reason: it changes the golden text into ours, and a difference that is none any more fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from compat.kafka_tools import KafkaTools
from compat.tool_scenario import CHAPTERS, GOLDEN, PROPERTIES, VERSIONS, Stage
from strandline.cli.cluster import EmbeddedCluster

Transcripts = dict[str, str]


class Difference(NamedTuple):
    """Where Kafka's transcript has `theirs` (a pattern), ours has `ours`."""

    chapter: str
    theirs: str
    ours: str
    reason: str
    versions: tuple[str, ...] = VERSIONS


OWN_WORDS = "what a broker of ours says is in words of its own, which tell what helps; the error is the same"
NO_SUCH_KEY = "what is not done here is no configuration here"
TOO_MANY = (
    "replication factor {}, but {} brokers are registered; ask for 1 to that many replicas, or start more brokers"
)
OF_NOBODY = r"Invalid config value for resource ConfigResource\(type=TOPIC, name='clicks'\): Invalid value"
RATE = r"(?:leader|follower)\.replication\.throttled\.rate"
REPLICAS = r"leader\.replication\.throttled\.replicas"
LISTED = "allowed is *, or a list of partition:broker"

DIFFERENCES = (
    Difference(
        "topics",
        r"Topic name is invalid: 'no/good' contains one .*",
        "topic name 'no/good' may only have letters, digits, '.', '_' and '-' (ASCII)",
        OWN_WORDS,
    ),
    Difference(
        "topics",
        r"Replication factor: 7 larger than available brokers: 3\.",
        f"topic big: {TOO_MANY.format(7, 3)}",
        OWN_WORDS,
    ),
    Difference(
        "cluster",
        r"Replication factor: 3 larger than available brokers: 2\.",
        f"topic big: {TOO_MANY.format(3, 2)}",
        OWN_WORDS,
    ),
    Difference(
        "cluster",
        r"SecurityDisabledException: No Authorizer is configured on the broker",
        "UnsupportedVersionException: The node does not support DESCRIBE_ACLS",
        "ACLs are not listed among the APIs; who asks for them all the same is told SECURITY_DISABLED",
    ),
    Difference(
        "records",
        r"max lag is -1 for partition null at offset -1",
        "max lag is 0 for partition P at offset N",
        "the tool fetches at version 18, which Kafka 3.9 does not serve",
        ("4.3",),
    ),
    Difference("configs", r"compression\.(gzip|lz4|zstd)\.level=.*\n", "", NO_SUCH_KEY),
    Difference("configs", r"(local\.retention\.(bytes|ms)|remote\.[a-z.]+)=.*\n", "", NO_SUCH_KEY),
    Difference(
        "configs", r"message\.format\.version=.*\n", "", "formats 0 and 1 are not written, and Kafka 4 has no such key"
    ),
    Difference(
        "configs",
        r"Unknown topic config name: no\.such\.key",
        "configuration no.such.key='1': there is no such topic key",
        OWN_WORDS,
    ),
    Difference(
        "configs",
        OF_NOBODY + r" soon for configuration retention\.ms: Not a number of type LONG",
        "configuration retention.ms='soon': not a whole number (-1 or more)",
        OWN_WORDS,
    ),
    Difference(
        "configs",
        OF_NOBODY + r" 1 for configuration segment\.bytes: Value must be at least 14",
        "configuration segment.bytes='1': allowed is 14 or more bytes",
        OWN_WORDS,
    ),
    Difference(
        "configs",
        r"(UnknownTopicOrPartitionException:)$",
        r"\1 The topic 'nowhere' does not exist.",
        "a Kafka names the topic that it does not have where it alters it, and not where it describes it",
        ("3.9",),
    ),
    Difference(
        "configs",
        r"Cannot update these configs dynamically: Set\(broker\.id\)",
        "configuration broker.id: read from the broker's file only",
        OWN_WORDS,
    ),
    Difference(
        "configs",
        r"Invalid value none for configuration log\.cleaner\.threads: Not a number of type INT",
        "configuration log.cleaner.threads='none': not a whole number (0 or more)",
        OWN_WORDS,
    ),
    Difference(
        "elections",
        r"Failed to elect leader for partition clicks-2 under strategy Preferred\w+",
        "broker 3, which clicks:2 prefers, is away",
        OWN_WORDS,
    ),
    Difference(
        "elections",
        r"Failed to elect leader for partition lonely-0 under strategy \w+\(true\)",
        "no replica of lonely:0 lives",
        OWN_WORDS,
    ),
    Difference(
        "elections",
        r"(Replicas: (\d,\d,\d) Isr: )\d,\d,\d",
        r"\1\2",
        "who joins the in-sync set takes its place in the order of the assignment, and not the last one",
    ),
    *(
        Difference(
            "elections",
            rf"(?s)(partition: {name}-{number}: .*?)The partition does not exist\.(.*?)The partition does not exist\.",
            rf"\1there is no partition {name}:{number}\2there is no partition {name}:{number}",
            OWN_WORDS,
        )
        for name, number in (("nowhere", 0), ("clicks", 7))
    ),
    Difference(
        "throttles",
        rf"(synonyms=\{{DYNAMIC_BROKER_CONFIG:({RATE})=[^}}]*)\}}",
        r"\1, DEFAULT_CONFIG:\2=9223372036854775807}",
        "a Kafka knows these keys where they are set, and has no default to show",
    ),
    Difference(
        "throttles",
        rf"Invalid value fast for configuration ({RATE}): Not a number of type LONG",
        r"configuration \1='fast': not a whole number (0 or more)",
        OWN_WORDS,
    ),
    Difference(
        "throttles",
        rf"Invalid value -1 for configuration ({RATE}): Value must be at least 0",
        r"configuration \1='-1': allowed is 0 or more bytes per second",
        OWN_WORDS,
    ),
    Difference(
        "throttles",
        r"Cannot update these configs dynamically: Set\((replication\.quota\.window\.num)\)",
        r"configuration \1: read from the broker's file only",
        OWN_WORDS,
    ),
    Difference(
        "quotas",
        r"Configuration producer_byte_rate must be a LONG value",
        "producer_byte_rate='10.5' of users/alice: allowed is a whole number, 1 or more (bytes per second)",
        OWN_WORDS,
    ),
    Difference(
        "throttles",
        OF_NOBODY + rf" \[all\] for configuration ({REPLICAS}): .*",
        rf"configuration \1='all': {LISTED}",
        OWN_WORDS,
    ),
    Difference(
        "throttles",
        OF_NOBODY + rf" \[\*, 0:1\] for configuration ({REPLICAS}): .*",
        rf"configuration \1='*,0:1': {LISTED}",
        OWN_WORDS,
    ),
)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def transcripts(version: str, tmp_path_factory: pytest.TempPathFactory) -> Transcripts:
    folder = tmp_path_factory.mktemp("tools")
    with EmbeddedCluster(folder, properties=PROPERTIES) as cluster, KafkaTools(version, folder) as tools:
        return dict(Stage(cluster, tools, folder).play())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_tools_of_kafka_say_what_they_say_about_a_kafka(
    chapter: str, version: str, transcripts: Transcripts
) -> None:
    assert transcripts[chapter].splitlines() == expected(chapter, version).splitlines()


def expected(chapter: str, version: str) -> str:
    text = Path(GOLDEN / f"{chapter}-{version}.txt").read_text()
    for difference in DIFFERENCES:
        if difference.chapter == chapter and version in difference.versions:
            text, changed = re.subn(difference.theirs, difference.ours, text, flags=re.MULTILINE)
            assert changed, f"no difference any more: {difference}"
    return text
