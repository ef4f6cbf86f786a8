"""A topic's overrides as another Kafka may have written them: what is understood holds, the rest deletes nothing."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import REMOTE_STORAGE, TOPIC_KEYS, TopicConfig, read_topic_config, topic_config
from strandline.runtime.config.values import INT_MAX, LONG_MAX, InvalidConfig

STATIC = {
    "broker.id": "1",
    "zookeeper.connect": "z:1",
    "log.dirs": "/data",
    "log.retention.ms": "60000",
    "log.retention.bytes": "1000",
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "2",
}
BROKER = load_broker_config(STATIC)
NAMES = list(TOPIC_KEYS)
OF_KAFKA = ("compression.zstd.level", "remote.storage.enable", "message.format.version", "local.retention.ms")


class Bounds(NamedTuple):
    """What a topic's configuration allows to be taken away, each the larger the less."""

    deletes_after_ms: float
    deletes_above_bytes: float
    compacts_after_ms: float
    needs_in_sync: int
    is_clean: bool


def bounds(config: TopicConfig) -> Bounds:
    deletes = "delete" in config.cleanup_policy
    return Bounds(
        config.retention_ms if deletes and config.retention_ms >= 0 else float("inf"),
        config.retention_bytes if deletes and config.retention_bytes >= 0 else float("inf"),
        config.min_compaction_lag_ms if config.is_compacted else float("inf"),
        config.min_insync_replicas,
        not config.unclean_leader_election_enable,
    )


def is_never_tighter(after: Bounds, before: Bounds) -> bool:
    return all(a >= b for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("unknown", OF_KAFKA)
def test_what_is_known_holds_beside_a_key_that_is_not(unknown: str) -> None:
    own = {"retention.ms": "-1", unknown: "3", "cleanup.policy": "compact"}
    reading = read_topic_config(BROKER, own)
    assert (reading.config.retention_ms, reading.config.cleanup_policy) == (-1, ("compact",))
    assert reading.config.retention_bytes == 1000, "a key that nobody knows says nothing about the others"
    assert [error.key for error in reading.unknown] == [unknown]
    assert not reading.unusable


@pytest.mark.parametrize("name", [name for name, key in TOPIC_KEYS.items() if key.broker_attribute])
def test_a_known_key_with_an_unusable_value_keeps_everything(name: str) -> None:
    text = "\0" if TOPIC_KEYS[name].kind.name in ("list", "string") else "soon"
    reading = read_topic_config(BROKER, {"cleanup.policy": "compact,delete", name: text})
    assert [error.key for error in reading.unusable] == [name]
    config = reading.config
    assert (config.retention_ms, config.retention_bytes, config.min_compaction_lag_ms) == (-1, -1, LONG_MAX)
    assert config.unclean_leader_election_enable is (name != "unclean.leader.election.enable")
    assert config.min_insync_replicas == (INT_MAX if name == "min.insync.replicas" else 2)
    with pytest.raises(InvalidConfig, match=name):
        topic_config(BROKER, {name: text})


def test_overrides_that_cannot_be_read_lose_nothing() -> None:
    config = read_topic_config(BROKER, None).config
    assert bounds(config) == (float("inf"), float("inf"), float("inf"), INT_MAX, True)


def test_lags_that_do_not_fit_each_other_compact_nothing() -> None:
    own = {"cleanup.policy": "compact", "min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    reading = read_topic_config(BROKER, own)
    assert reading.config.min_compaction_lag_ms == reading.config.max_compaction_lag_ms == LONG_MAX
    assert [error.key for error in reading.unusable] == ["min.compaction.lag.ms"]


@pytest.mark.parametrize(
    ("undecided", "own", "expected"),
    [
        (("log_retention_ms",), {}, (float("inf"), 1000)),
        (("log_retention_ms",), {"retention.ms": "5"}, (5, 1000)),
        (("log_retention_bytes",), {}, (60000, float("inf"))),
        (("log_cleanup_policy",), {}, (float("inf"), float("inf"))),
        (("log_cleanup_policy",), {"cleanup.policy": "delete"}, (60000, 1000)),
        (("compression_type", "log_segment_bytes"), {}, (60000, 1000)),
    ],
)
def test_a_default_that_cannot_be_read_deletes_nothing_where_the_topic_does_not_say_itself(
    undecided: tuple[str, ...], own: dict[str, str], expected: tuple[float, float]
) -> None:
    broker = msgspec.structs.replace(BROKER, undecided=frozenset(undecided))
    assert bounds(read_topic_config(broker, own).config)[:2] == expected


LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
sound_overrides = st.fixed_dictionaries(
    {},
    optional={
        "retention.ms": st.integers(-1, 10**6).map(str),
        "retention.bytes": st.integers(-1, 10**6).map(str),
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete"]),
        "min.compaction.lag.ms": st.integers(0, 10**6).map(str),
        "min.insync.replicas": st.integers(1, 5).map(str),
        "unclean.leader.election.enable": st.sampled_from(["true", "false"]),
        "segment.ms": st.integers(1, 10**6).map(str),
    },
)
junk = st.dictionaries(
    st.one_of(st.sampled_from(OF_KAFKA), st.text(max_size=30), st.sampled_from(NAMES)).filter(
        lambda name: name not in LAGS
    ),
    st.text(max_size=10),
    max_size=5,
)


@given(sound=sound_overrides, added=junk)
def test_junk_beside_sound_overrides_never_tightens_a_bound(sound: dict[str, str], added: dict[str, str]) -> None:
    without = topic_config(BROKER, sound)
    beside = {name: text for name, text in added.items() if name not in sound and not _is_usable(name, text)}
    reading = read_topic_config(BROKER, {**sound, **beside})
    assert is_never_tighter(bounds(reading.config), bounds(without))
    assert {error.key for error in (*reading.unknown, *reading.unusable)} == beside.keys()
    # What is understood is not touched by the rest.
    if not reading.unusable:
        is_tiered = beside.get(REMOTE_STORAGE, "false").strip().lower() != "false"
        assert reading.config == msgspec.structs.replace(without, is_tiered=is_tiered)


def _is_usable(name: str, text: str) -> bool:
    try:
        topic_config(BROKER, {name: text})
    except InvalidConfig:
        return False
    return True


@given(overrides=st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text()), st.text()))
def test_any_overrides_at_all_can_be_read(overrides: dict[str, str]) -> None:
    reading = read_topic_config(BROKER, overrides)
    if reading.unusable:
        assert (reading.config.retention_ms, reading.config.retention_bytes) == (-1, -1)
