"""Client settings: Kafka's names with underscores, their defaults, units and limits, in one table per client.

`from_mapping` takes what a caller gave (keyword arguments, or strings of a command line or file; dots and hyphens count
as underscores), converts and checks it; an unknown name is refused together with the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from strandline.client.errors import InvalidClientConfig
from strandline.client.identity import ProducerIdentity
from strandline.protocol.native.frame import MAX_FRAME_BYTES
from strandline.runtime.network import Address

S = TypeVar("S", bound="ClientSettings")

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BUFFER_FULL_POLICIES = ("block", "drop", "raise")
RESET_POLICIES = ("earliest", "latest", "none")
ASSIGNMENT_STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")

FUNCTIONS = ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer", "partitioner")

Deserializer = Callable[[bytes], Any]

Partitioner = Callable[[bytes, int], int]
"""(key, number of partitions) → partition."""

Serializer = Callable[[Any], bytes | None]
"""Makes bytes of a key or value. It is not asked about None."""


EXIT_FLUSH_MS = 5_000
"""How long a producer is flushed that nobody closed before the interpreter ended, or whose block an error ended."""

MAX_INT = 2**31 - 1
"""Requests carry these numbers in 32 bits."""

MAX_STRING_BYTES = 2**15 - 1


def at_least(minimum: float, default: float | int | None, unit: str, doc: str, *, at_most: float = math.inf) -> Any:
    """A numeric field with its limits and documentation."""
    return field(default=default, metadata={"minimum": minimum, "maximum": at_most, "unit": unit, "doc": doc})


def one_of(choices: tuple[str, ...], default: str, doc: str) -> Any:
    return field(default=default, metadata={"choices": choices, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What every client has."""

    bootstrap_servers: str = field(metadata={"doc": "host:port,… of brokers to ask first; one that lives is enough"})
    client_id: str = field(default="", metadata={"doc": "names this client in the brokers' logs"})
    request_timeout_ms: float = at_least(
        1, 30_000, "ms", "how long one request may wait for its answer", at_most=MAX_INT
    )
    socket_connection_setup_timeout_ms: float = at_least(1, 10_000, "ms", "how long connecting may take")
    bootstrap_timeout_ms: float = at_least(
        1, 10_000, "ms", "how long calls wait until any broker of bootstrap_servers answers for the first time"
    )
    metadata_max_age_ms: float = at_least(1, 300_000, "ms", "the cluster's layout is asked for again after this time")
    retry_backoff_ms: float = at_least(0, 100, "ms", "wait before the first retry; doubles up to the maximum")
    retry_backoff_max_ms: float = at_least(0, 1_000, "ms", "longest wait between retries")
    default_api_timeout_ms: float = at_least(
        1, 60_000, "ms", "limit of calls that take no timeout of their own", at_most=MAX_INT
    )
    max_frame_bytes: int = at_least(1024, MAX_FRAME_BYTES, "bytes", "a longer answer closes the connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    acks: int = field(default=-1, metadata={"doc": "0: no answer, 1: the leader has it, all (-1): committed"})
    retries: int = at_least(
        0, MAX_INT, "times", "attempts after the first; delivery_timeout_ms is the usual limit", at_most=MAX_INT
    )
    delivery_timeout_ms: float = at_least(1, 120_000, "ms", "from accepting a record to success or failure")
    batch_size: int = at_least(0, 16_384, "bytes", "a batch is sent at the latest when it is this large")
    linger_ms: float | None = at_least(
        0,
        None,
        "ms",
        "how long a batch waits for more records; None: not at all where nothing is under way to its broker, else "
        "while records come, and 5 ms at most",
    )
    buffer_memory: int = at_least(1, 33_554_432, "bytes", "records that wait for delivery")
    max_block_ms: float = at_least(0, 60_000, "ms", "how long sending may wait for buffer space or metadata")
    buffer_full: str = one_of(BUFFER_FULL_POLICIES, "block", "what sending does when buffer_memory is used up")
    compression_type: str = one_of(CODECS, "none", "codec of batches")
    max_request_size: int = at_least(
        1,
        1_048_576,
        "bytes",
        "largest record, with its framing, and most bytes per partition and request",
        at_most=MAX_INT,
    )
    max_in_flight_requests_per_connection: int = at_least(1, 5, "requests", "unanswered requests per broker")
    enable_idempotence: bool | None = field(
        default=None, metadata={"doc": "no record stands twice; None: as long as acks=all and retries allow it"}
    )
    allow_auto_create_topics: bool = field(
        default=True, metadata={"doc": "brokers may create the topic that is written to (auto.create.topics.enable)"}
    )
    identity: ProducerIdentity | None = field(
        default=None, metadata={"doc": "id, epoch and first sequences of the program's own; None: a broker gives them"}
    )
    key_serializer: Serializer | None = field(
        default=None, metadata={"doc": "makes bytes of keys, in the thread or task that sends; not asked about None"}
    )
    value_serializer: Serializer | None = field(default=None, metadata={"doc": "likewise of values"})
    partitioner: Partitioner | None = field(default=None, metadata={"doc": "for records with a key; None: murmur2"})

    def __post_init__(self) -> None:
        if self.enable_idempotence and not self._allows_idempotence:
            raise InvalidClientConfig("enable_idempotence=true needs acks=all and retries above 0")
        if self.identity is not None and not self.is_idempotent:
            raise InvalidClientConfig("identity needs acks=all, retries above 0 and enable_idempotence")

    @property
    def batch_limit_bytes(self) -> int:
        """Of a batch that has more than one record, before compression."""
        return min(self.batch_size, self.max_request_size)

    @property
    def is_idempotent(self) -> bool:
        return self._allows_idempotence if self.enable_idempotence is None else self.enable_idempotence

    @property
    def _allows_idempotence(self) -> bool:
        return self.acks == -1 and self.retries > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    auto_offset_reset: str = one_of(RESET_POLICIES, "latest", "where to start without a valid position")
    fetch_min_bytes: int = at_least(0, 1, "bytes", "a fetch waits for this much", at_most=MAX_INT)
    fetch_max_wait_ms: int = at_least(0, 500, "ms", "… but at most this long", at_most=MAX_INT)
    fetch_max_bytes: int = at_least(
        1, 52_428_800, "bytes", "most bytes per fetch (one batch is always whole)", at_most=MAX_INT
    )
    max_partition_fetch_bytes: int = at_least(
        1, 1_048_576, "bytes", "… and per partition; as much is read ahead", at_most=MAX_INT
    )
    max_poll_records: int = at_least(1, 500, "records", "most records per poll")
    consumer_timeout_ms: float = at_least(
        0, math.inf, "ms", "a loop over the consumer ends when no record has come for so long"
    )
    key_deserializer: Deserializer | None = field(
        default=None, metadata={"doc": "makes of a key's bytes what the program gets; not asked about None"}
    )
    value_deserializer: Deserializer | None = field(default=None, metadata={"doc": "likewise of a value's"})
    check_crcs: bool = field(default=True, metadata={"doc": "verify the CRC-32C of every batch"})
    client_rack: str = field(default="", metadata={"doc": "rack of this client"})
    group_id: str = field(default="", metadata={"doc": "the consumer's group; empty: none"})
    group_instance_id: str = field(
        default="", metadata={"doc": "makes it a static member, which keeps its partitions while it is started anew"}
    )
    session_timeout_ms: int = at_least(
        1, 45_000, "ms", "a member that is not heard of for so long is let go", at_most=MAX_INT
    )
    heartbeat_interval_ms: int = at_least(1, 3_000, "ms", "how often it is heard of")
    max_poll_interval_ms: int = at_least(
        1, 300_000, "ms", "a member that does not poll for so long leaves its group", at_most=MAX_INT
    )
    enable_auto_commit: bool = field(
        default=True,
        metadata={"doc": "poll and close commit what polls before them gave; in a group only; failures are warned of"},
    )
    auto_commit_interval_ms: float = at_least(
        0, 5_000, "ms", "… and poll not more often than this, nor before the last commit is answered"
    )
    partition_assignment_strategy: tuple[str, ...] = field(
        default=("range", "cooperative-sticky"),
        metadata={
            "several_of": ASSIGNMENT_STRATEGIES,
            "doc": "ways of assigning; the group uses one that all its members have",
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """Nothing of its own."""


NOT_SERVED: dict[tuple[str, ...], str] = {
    ("security_protocol", "ssl_", "sasl_"): "there is neither TLS nor SASL",
    ("transactional_id", "transaction_timeout_ms", "isolation_level"): "brokers serve no transactions",
    ("api_version",): "versions are agreed upon with each broker",
}
"""Beginnings of settings of other clients, and why there is none of that name."""


def from_mapping(cls: type[S], values: Mapping[str, Any]) -> S:
    """Checked settings. InvalidClientConfig names the key, the value and what is allowed."""
    fields = {item.name: item for item in dataclasses.fields(cls)}
    checked: dict[str, Any] = {}
    for given, value in values.items():
        name = given.replace(".", "_").replace("-", "_")
        if name not in fields:
            raise InvalidClientConfig(f"unknown setting {given!r}; {_hint(given, name, sorted(fields))}")
        checked[name] = _checked(fields[name], given, value)
    if "bootstrap_servers" not in checked:
        raise InvalidClientConfig("bootstrap_servers is missing; give host:port of one or more brokers")
    parse_addresses(checked["bootstrap_servers"])
    return cls(**checked)


def _hint(given: str, name: str, known: list[str]) -> str:
    """About a setting that there is not, with names in the way of writing that was `given`."""
    for prefixes, why in NOT_SERVED.items():
        if name.startswith(prefixes):
            return f"{why}: leave it out"
    near = difflib.get_close_matches(name, known, n=1)
    names = [each.replace("_", ".") if "." in given else each for each in near or known]
    return f"did you mean {names[0]}?" if near else f"known are {', '.join(names)}"


def parse_addresses(bootstrap_servers: str) -> list[Address]:
    """`host:port,[ipv6]:port,…` as addresses. InvalidClientConfig on anything else."""
    addresses = []
    for part in bootstrap_servers.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise InvalidClientConfig(f"bootstrap_servers: {part.strip()!r} is not host:port")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    return addresses


def _checked(item: dataclasses.Field[Any], given: str, value: Any) -> Any:
    """`value` as the type of the field, within its limits."""
    if item.name == "acks":
        if not isinstance(value, int | str) or str(value) not in ACKS:
            raise InvalidClientConfig(f"{given}={value!r}: use 0, 1 or all")
        return ACKS[str(value)]
    if item.name == "identity":
        if not isinstance(value, ProducerIdentity | None):
            raise InvalidClientConfig(f"{given}={value!r} is not a ProducerIdentity; leave it out where there is none")
        return value
    if item.name in FUNCTIONS:
        if not (value is None or callable(value)):
            raise InvalidClientConfig(f"{given}={value!r} is not a function; leave it out where there is none")
        return value
    if item.name == "bootstrap_servers" and not isinstance(value, str):
        if isinstance(value, Mapping):
            raise InvalidClientConfig(f"{given} is a dict: settings are given by name, bootstrap_servers='host:port'")
        if isinstance(value, bytes) or not isinstance(value, Iterable):
            raise InvalidClientConfig(f"{given}={value!r} is not host:port, nor a list of these")
        value = ",".join(str(part) for part in value)
    if "several_of" in item.metadata:
        return _several(item.metadata["several_of"], given, value)
    if "choices" in item.metadata:
        if not isinstance(value, str) or value not in item.metadata["choices"]:
            raise InvalidClientConfig(f"{given}={value!r}: use one of {', '.join(item.metadata['choices'])}")
        return value
    if "minimum" in item.metadata:
        return None if value is None and item.default is None else _number(item, given, value)
    if item.type == "str":
        return _string(item, given, value)
    assert item.type in ("bool", "bool | None"), item
    return None if value is None and item.default is None else _boolean(given, value)


def _boolean(given: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in ("true", "false"):
        raise InvalidClientConfig(f"{given}={value!r}: use true or false")
    return value.lower() == "true"


def _several(known: tuple[str, ...], given: str, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    names: tuple[str, ...] = ()
    if isinstance(parts, Collection) and all(isinstance(part, str) for part in parts):
        names = tuple(part.strip() for part in parts)
    if not names or not set(names) <= set(known):
        raise InvalidClientConfig(f"{given}={value!r}: use one or several of {', '.join(known)}")
    return names


def _number(item: dataclasses.Field[Any], given: str, value: Any) -> float:
    whole, minimum, maximum = item.type == "int", item.metadata["minimum"], item.metadata["maximum"]
    unit = item.metadata["unit"]
    is_cut = isinstance(value, bool | bytes | bytearray)  # Python takes these for numbers
    try:
        number: float = int(value) if whole else float(value)
        is_cut = is_cut or (whole and not isinstance(value, str) and number != value)
    except (TypeError, ValueError, OverflowError):
        is_cut = True
    if is_cut:
        kind = "an integer" if whole else "a number"
        raise InvalidClientConfig(f"{given}={value!r} is not {kind}; give at least {minimum} {unit}")
    if not number >= minimum:
        raise InvalidClientConfig(f"{given}={value!r}: at least {minimum} {unit}")
    if number > maximum:
        raise InvalidClientConfig(f"{given}={value!r}: at most {maximum} {unit}")
    return number


def _string(item: dataclasses.Field[Any], given: str, value: Any) -> str:
    if value is None and item.name in ("group_id", "group_instance_id"):
        return ""  # none, as in other clients
    if not isinstance(value, str):
        raise InvalidClientConfig(f"{given}={value!r} is not a string; leave it out where there is none")
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidClientConfig(
            f"{given}={value!r} cannot be written in UTF-8; leave out its lone surrogates"
        ) from None
    if item.name != "bootstrap_servers" and size_bytes > MAX_STRING_BYTES:
        raise InvalidClientConfig(f"{given} is longer than {MAX_STRING_BYTES} bytes")
    return value
