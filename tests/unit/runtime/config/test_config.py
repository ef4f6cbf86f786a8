"""The configuration: each key is declared whole, every value is checked, and what has no effect is said."""

from __future__ import annotations

import errno
import string
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.records.rules import BatchRules
from strandline.runtime.config.broker import BROKER_KEYS, BrokerConfig
from strandline.runtime.config.keys import ConfigKey
from strandline.runtime.config.listeners import Listener
from strandline.runtime.config.properties import layered, parse_properties
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import TOPIC_KEYS, topic_config
from strandline.runtime.config.values import InvalidConfig, unusable_folder

MINIMUM = {"broker.id": "1", "zookeeper.connect": "localhost:2181", "log.dirs": "/data"}


def load(**overrides: str) -> BrokerConfig:
    """Keys with underscores for dots."""
    return load_broker_config({**MINIMUM, **{name.replace("_", "."): text for name, text in overrides.items()}})


# --- the table ---------------------------------------------------------------------------------------------------


def test_only_an_attribute_whose_type_says_so_may_be_left_out() -> None:
    config, hints = load(), get_type_hints(BrokerConfig)
    left_out = {name for name in config.__struct_fields__ if getattr(config, name) is None}
    assert left_out == {name for name in left_out if type(None) in get_args(hints[name])}


@pytest.mark.parametrize("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()], ids=lambda key: key.name)
def test_a_row_is_complete_and_its_default_is_allowed(key: ConfigKey) -> None:
    assert key.doc.endswith((".", ".)"))
    assert len(key.doc) <= 200
    if key.default is not None:
        assert key.allowed.test(key.default)
        assert key.parse(key.default_text) == key.default


def test_defaults_are_kafka_1_0s_but_for_those_that_were_decided_otherwise() -> None:
    config = load()
    assert config.replica_lag_time_max_ms == 30_000
    assert config.zookeeper_session_timeout_ms == config.zookeeper_connection_timeout_ms == 18_000
    assert config.offsets_retention_minutes == 10_080
    assert config.message_max_bytes == 1_048_588
    assert (config.group_max_session_timeout_ms, config.log_retention_ms) == (300_000, 168 * 3_600_000)
    assert (config.num_partitions, config.default_replication_factor, config.min_insync_replicas) == (1, 3, 1)
    assert (config.num_network_threads, config.num_io_threads, config.queued_max_requests) == (3, 8, 500)
    assert config.max_connections < 100_000, "bounded, unlike Kafka's"
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)


# --- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("num.io.threads", "0", "from 1 to 10000"),
        ("num.io.threads", "eight", "not a whole number"),
        ("num.io.threads", "1e3", "not a whole number"),
        ("num.io.threads", "1_0", "not a whole number"),
        ("log.cleaner.min.cleanable.ratio", "0_1", "not a number"),
        ("num.io.threads", "٣", "not a whole number"),
        ("num.io.threads", "9" * 5000, "not a whole number"),
        ("num.io.threads", "2147483648", "32 bits"),
        ("log.retention.bytes", "9223372036854775808", "64 bits"),
        ("log.retention.ms", "-2", "-1 or more ms"),
        ("log.retention.ms", "0", "1 ms or more"),
        ("log.segment.bytes", "13", "14 or more bytes"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "finite"),
        ("log.cleanup.policy", "delete,shred", "delete, compact"),
        ("compression.type", "brotli", "zstd"),
        ("unclean.recovery.strategy", "aggressive", "balanced, none"),
        ("broker.id", "-1", "0 or more"),
        ("broker.rack", "", "not empty"),
        ("zookeeper.connect", "", "not empty"),
        ("zookeeper.connect", "host:port", "host:port"),
        ("zookeeper.connect", "a b:2181", "host:port"),
        ("authorizer.class.name", "kafka.security.auth.SimpleAclAuthorizer", "one of"),
        ("security.inter.broker.protocol", "SSL", "PLAINTEXT"),
        ("replica.fetch.wait.max.ms", "60000", "replica.socket.timeout.ms"),
        ("inter.broker.connections.reserved", "5000", "max.connections"),
        ("max.connection.creation.rate", "0", "allowed is 1 or more"),
        ("log.cleaner.dedupe.buffer.size", "1000000", "1 MiB for each of log.cleaner.threads=1"),
        ("log.cleaner.threads", "1000", "1 MiB for each of log.cleaner.threads=1000"),
        ("log.dirs", "/a,/b,/a/", "twice"),
        ("kafka.metrics.reporters", "com.example.Other", "any of kafka.metrics.KafkaCSVMetricsReporter"),
        ("kafka.csv.metrics.reporter.enabled", "true", "unless kafka.metrics.reporters names"),
        ("log.dirs", "relative/logs", "absolute"),
        ("log.dir", "/other", "not both"),
        ("listeners", "localhost:9092", "NAME://host:port"),
        ("listeners", "PLAINTEXT://localhost", "NAME://host:port"),
        ("listeners", "PLAINTEXT://localhost:70000", "NAME://host:port"),
        ("listeners", "SSL://localhost:9093", "not served yet"),
        ("listeners", "INSIDE://localhost:9093", "listener.security.protocol.map"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "twice"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092", "nobody can connect"),
        ("advertised.listeners", "SSL://a:1", "not served yet"),
        ("advertised.listeners", "PLAINTEXT://[::]:1", "nobody can connect"),
        ("inter.broker.listener.name", "INSIDE", "PLAINTEXT"),
        ("listener.security.protocol.map", "PLAINTEXT", "NAME:PROTOCOL"),
        ("listener.security.protocol.map", "A:PLAINTEXT,A:PLAINTEXT", "twice"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_naming_key_value_and_what_is(
    name: str, text: str, allowed: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_broker_config({**MINIMUM, name: text})
    message = str(caught.value)
    assert allowed in message
    assert caught.value.key in message
    assert "\n" not in message and len(message) < 500


@pytest.mark.parametrize("missing", ["broker.id", "zookeeper.connect"])
def test_what_has_no_sensible_default_is_required(missing: str) -> None:
    with pytest.raises(InvalidConfig, match=missing):
        load_broker_config({name: text for name, text in MINIMUM.items() if name != missing})


@pytest.mark.parametrize("connect", ["a:1", "a", "a:1,b:2/chroot/x", "10.0.0.1:2181", "[::1]:2181", "a:1/"])
def test_these_are_addresses_of_zookeeper(connect: str) -> None:
    assert load(zookeeper_connect=connect).zookeeper_connect == connect


def test_the_most_precise_key_wins() -> None:
    hour_ms = 3_600_000
    assert load(log_retention_hours="2").log_retention_ms == 2 * hour_ms
    assert load(log_retention_hours="2", log_retention_minutes="3").log_retention_ms == 180_000
    assert load(log_retention_minutes="3", log_retention_ms="4").log_retention_ms == 4
    assert load(log_retention_hours="-1").log_retention_ms == -1
    assert load(log_roll_hours="1").log_roll_ms == hour_ms
    assert load(log_roll_hours="1", log_roll_ms="5").log_roll_ms == 5
    assert load(log_roll_jitter_hours="1").log_roll_jitter_ms == hour_ms
    assert load(log_flush_scheduler_interval_ms="7").log_flush_interval_ms == 7
    assert load(log_flush_scheduler_interval_ms="7", log_flush_interval_ms="8").log_flush_interval_ms == 8
    assert load(zookeeper_session_timeout_ms="6000").zookeeper_connection_timeout_ms == 6000


def test_log_dir_stands_in_for_log_dirs() -> None:
    only_dir = {name: text for name, text in MINIMUM.items() if name != "log.dirs"}
    assert load_broker_config({**only_dir, "log.dir": "/one"}).log_dirs == ("/one",)
    assert load(log_dirs="/a, /b/../c/").log_dirs == ("/a", "/c")


# --- listeners ---------------------------------------------------------------------------------------------------


def test_listeners_have_names_and_what_is_advertised_may_differ() -> None:
    config = load_broker_config(
        {
            **MINIMUM,
            "listeners": "INSIDE://:9093, CLIENTS://[::1]:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENTS:PLAINTEXT",
            "advertised.listeners": "CLIENTS://broker1.example:19092,INSIDE://10.0.0.5:9093",
            "inter.broker.listener.name": "inside",
        }
    )
    assert [str(listener) for listener in config.listeners] == ["INSIDE://127.0.0.1:9093", "CLIENTS://[::1]:0"]
    assert {listener.name: listener.host for listener in config.advertised_listeners} == {
        "CLIENTS": "broker1.example",
        "INSIDE": "10.0.0.5",
    }
    assert config.inter_broker_listener_name == "INSIDE"


def test_without_a_name_brokers_use_plaintext_else_the_first_listener() -> None:
    protocols = "A:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    both = {**MINIMUM, "listener.security.protocol.map": protocols}
    listeners = "A://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"
    assert load_broker_config({**both, "listeners": listeners}).inter_broker_listener_name == "PLAINTEXT"
    assert load_broker_config({**both, "listeners": "A://127.0.0.1:1"}).inter_broker_listener_name == "A"


def test_each_listener_is_advertised_and_no_other() -> None:
    with pytest.raises(InvalidConfig, match="does not bind B"):
        load_broker_config(
            {
                **MINIMUM,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
                "advertised.listeners": "PLAINTEXT://a:1,B://a:2",
            }
        )
    with pytest.raises(InvalidConfig, match="no address for listener PLAINTEXT"):
        load_broker_config(
            {
                **MINIMUM,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
                "advertised.listeners": "B://a:2",
            }
        )


# --- warnings ----------------------------------------------------------------------------------------------------


def test_a_sound_configuration_has_no_warnings() -> None:
    assert load().warnings == ()
    assert load().explicit == ("broker.id", "zookeeper.connect", "log.dirs")


@pytest.mark.parametrize(
    ("name", "text", "warning"),
    [
        ("log.segement.bytes", "1", "did you mean log.segment.bytes?"),
        ("zzz.qqq", "1", "unknown key zzz.qqq is ignored"),
        ("transaction.max.timeout.ms", "10000", "not honoured yet"),
        ("ssl.keystore.location", "/k", "not honoured yet"),
        ("port", "9092", "write listeners instead"),
        ("listeners", "PLAINTEXT://10.0.0.1:9092", "other machines"),
        ("min.insync.replicas", "4", "above default.replication.factor=3"),
        ("socket.request.max.bytes", "1000", "never arrive"),
    ],
)
def test_what_the_operator_should_know_is_a_warning(name: str, text: str, warning: str) -> None:
    (only,) = load_broker_config({**MINIMUM, name: text}).warnings
    assert warning in only


def test_every_key_that_is_not_honoured_says_so_when_it_is_set() -> None:
    for key in BROKER_KEYS.values():
        if not key.honoured and key.default is not None:
            (warning,) = load_broker_config({**MINIMUM, key.name: key.default_text}).warnings
            assert warning.startswith(f"{key.name}=") and warning.endswith(f" has no effect: {key.without_effect}")


def test_logs_in_a_temporary_folder_are_a_warning() -> None:
    (warning,) = load_broker_config({"broker.id": "1", "zookeeper.connect": "z:1"}).warnings
    assert "log.dirs is not set" in warning


# --- topics ------------------------------------------------------------------------------------------------------


def test_a_topic_has_the_brokers_values_unless_it_says_otherwise() -> None:
    config = load(message_max_bytes="5000", log_roll_hours="1", min_insync_replicas="1")
    plain = topic_config(config, {})
    assert (plain.max_message_bytes, plain.segment_ms, plain.is_compacted) == (5000, 3_600_000, False)
    own = topic_config(config, {"max.message.bytes": "7", "cleanup.policy": "compact,delete", "flush.ms": "9"})
    assert (own.max_message_bytes, own.segment_ms, own.flush_ms, own.is_compacted) == (7, 3_600_000, 9, True)
    assert (plain.batch_rules, own.batch_rules) == (None, BatchRules(needs_keys=True))


def test_the_rules_of_a_topics_batches_follow_its_own_keys_and_the_brokers() -> None:
    config = load(compression_type="lz4", log_message_timestamp_before_max_ms="60000")
    assert topic_config(config, {}).batch_rules == BatchRules(codec=3, before_max_ms=60_000)
    own = {"compression.type": "producer", "message.timestamp.difference.max.ms": "5"}
    assert topic_config(config, own).batch_rules == BatchRules(before_max_ms=60_000, after_max_ms=5)
    assert topic_config(config, {"message.timestamp.type": "LogAppendTime"}).batch_rules == BatchRules(
        codec=3, stamps=True
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("retention.msec", "1", "did you mean retention.ms?"),
        ("log.dirs", "/x", "no such topic key"),
        ("retention.ms", "soon", "not a whole number"),
        ("min.insync.replicas", "0", "1 or more"),
        ("cleanup.policy", "", "delete, compact"),
        ("max.compaction.lag.ms", "0", "1 or more"),
        *(("segment.index.bytes", str(less), "12 or more") for less in range(12)),
    ],
)
def test_a_topics_key_that_is_unknown_or_not_allowed_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=name) as caught:
        topic_config(load(), {name: text})
    assert why in str(caught.value)


def test_a_topics_lags_have_to_fit_each_other() -> None:
    assert topic_config(load(), {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}).min_compaction_lag_ms == 5
    with pytest.raises(
        InvalidConfig, match=r"min\.compaction\.lag\.ms=6: must not be above max\.compaction\.lag\.ms=5"
    ):
        topic_config(load(), {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


# --- the file ----------------------------------------------------------------------------------------------------


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = r"""
# a comment
! another = one
a=1
  b : two words
c   three
d
e = \
    joined \
    up
f\ g\:h = x=y
i=\u0041\t|\\
a=2
j=ends with backslashes\\
k="""
    assert parse_properties(text) == {
        "a": "2",
        "b": "two words",
        "c": "three",
        "d": "",
        "e": "joined up",
        "f g:h": "x=y",
        "i": "A\t|\\",
        "j": "ends with backslashes\\",
        "k": "",
    }


def test_windows_line_ends_and_a_continuation_at_the_end_do_no_harm() -> None:
    assert parse_properties("a=1\r\nb=2\rc=3\\") == {"a": "1", "b": "2", "c": "3"}


@pytest.mark.parametrize("line", ["=value", ": value", "a=\\u12"])
def test_a_line_that_makes_no_sense_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(InvalidConfig, match="line 2"):
        parse_properties("ok=1\n" + line)


@given(st.dictionaries(st.text(string.ascii_letters + ".", min_size=1), st.text(string.printable), max_size=5))
def test_what_is_written_with_escapes_comes_back(properties: dict[str, str]) -> None:
    def escape(text: str) -> str:
        return "".join(f"\\u{ord(c):04x}" if not c.isalnum() else c for c in text)

    text = "\n".join(f"{key}={escape(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except InvalidConfig:
        pass


@given(st.dictionaries(st.sampled_from(list(BROKER_KEYS)), st.text(max_size=12), max_size=4))
def test_any_values_are_taken_or_refused(given_values: dict[str, str]) -> None:
    try:
        load_broker_config({**MINIMUM, **given_values})
    except InvalidConfig:
        pass


def test_of_two_sources_the_later_wins_and_names_the_data_folders_by_either_key() -> None:
    image = {"log.dirs": "/image", "broker.id": "1"}
    assert layered(image, {"broker.id": "2"}) == {"log.dirs": "/image", "broker.id": "2"}
    assert layered(image, {"log.dir": "/mine"}) == {"log.dir": "/mine", "broker.id": "1"}
    assert layered({"log.dir": "/image"}, {"log.dirs": "/a,/b"}, {}) == {"log.dirs": "/a,/b"}
    with pytest.raises(InvalidConfig, match="not both"):
        load_broker_config(layered(image, MINIMUM, {"log.dir": "/mine", "log.dirs": "/mine"}))


def test_an_address_for_others_before_a_listener_that_only_this_machine_reaches_is_doubted() -> None:
    told = "others are told PLAINTEXT://kafka:9092, but listener PLAINTEXT://127.0.0.1:9092"
    (doubt,) = (each for each in load(advertised_listeners="PLAINTEXT://kafka:9092").warnings if "others" in each)
    assert doubt.startswith(told) and "0.0.0.0" in doubt
    quiet = load(advertised_listeners="PLAINTEXT://kafka:9092", listeners="PLAINTEXT://0.0.0.0:9092")
    assert not any("others" in each for each in (*quiet.warnings, *load().warnings))


def test_the_admin_port_is_one_address_or_none() -> None:
    assert load().admin_listener == ("127.0.0.1", 0)
    assert load(admin_listener="0.0.0.0:8080").admin_listener == ("0.0.0.0", 8080)
    assert load(admin_listener="").admin_listener is None
    with pytest.raises(InvalidConfig, match=r"admin\.listener"):
        load(admin_listener="8080")


# --- folders that cannot be used ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EACCES, errno.EEXIST, errno.EROFS, errno.ENOSPC, errno.EBUSY])
def test_a_folder_that_cannot_be_used_is_told_with_key_reason_and_remedy(number: int) -> None:
    text = str(unusable_folder("log.dirs", "/data", OSError(number, "whatever", "/data")))
    assert text.startswith("configuration log.dirs='/data': ") and "; " in text
    assert "Errno" not in text and "\n" not in text


def test_the_part_of_a_path_that_is_in_the_way_is_named() -> None:
    error = OSError(errno.ENOTDIR, "Not a directory", "/data/file")
    assert "/data/file: a part of the path is a file" in str(unusable_folder("log.folder", "/data/file/x", error))
