"""Options that several commands share, and how `-X key=value` settings are read."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.cluster_state import DATA_VARIABLE
from strandline.cli.session import BOOTSTRAP_VARIABLE, JSON_VERSION, bootstrap_of, session_of

if TYPE_CHECKING:
    from strandline import Admin, Consumer
    from strandline.client.metadata import PartitionView
    from strandline.protocol.types import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])

DAY_S = 86_400
"""The longest pause that an option can ask for."""

MOST_PER_SECOND = 1_000_000_000
"""The highest rate, and the highest speed, that an option can ask for."""


class BoundedFloat(click.FloatRange):
    """A number of seconds, a rate or a factor, always between two bounds. `click.FloatRange` alone takes `nan`, which
    is neither below nor above a bound, and without an upper one `inf`; nobody can pause for either."""

    def __init__(self, min: float, max: float, *, min_open: bool = False) -> None:
        super().__init__(min, max, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


def bootstrap_option(function: F) -> F:
    """`-b/--bootstrap host:port,…` and `--data FOLDER`: which cluster. `bootstrap_of` decides; it finds the folder in
    the session, so commands are handed the address only."""
    function = click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="FOLDER",
        expose_value=False,
        callback=_keep_folder,
        help=f"The cluster that `strandline up --data FOLDER` started; ${DATA_VARIABLE}.",
    )(function)
    return click.option(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT,…",
        help=f"Brokers to ask first. Without it and --data: ${BOOTSTRAP_VARIABLE}, else ${DATA_VARIABLE}, else the "
        "cluster of ./strandline-data if it is up, else localhost:9092.",
    )(function)


def named_alike(ctx: click.Context, bootstrap: str | None, settings: Iterable[str]) -> str:
    """What another command line has to say, too, to reach the same cluster: a blank and the options that were given, or
    nothing."""
    folder = session_of(ctx).line.data_dir
    words = [] if bootstrap is None else ["-b", bootstrap]
    words += [] if folder is None else ["--data", str(folder)]
    words += [word for each in settings for word in ("-X", each)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _keep_folder(ctx: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    session_of(ctx).line.data_dir = folder


def legal_topic(name: str) -> str:
    """The name itself; UsageError for one that no topic can have, before anybody is asked."""
    from strandline.protocol.topic_name import InvalidTopicName, check_topic_name

    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise click.UsageError(str(error)) from None
    return name


def topic_and_partition(text: str) -> tuple[str, int | None]:
    """TOPIC or TOPIC:PARTITION. UsageError for anything else."""
    topic, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdigit() and int(number) < 2**31):
        raise click.UsageError(f"'{text}' is not TOPIC or TOPIC:PARTITION; give for example clicks:0")
    return legal_topic(topic), int(number) if colon else None


def topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    """TOPIC (None: all of its partitions) or TOPIC:0,1. UsageError for anything else."""
    topic, colon, numbers = text.partition(":")
    found = [topic_and_partition(f"{topic}:{number}")[1] for number in numbers.split(",")] if colon else None
    return legal_topic(topic), None if found is None else [number for number in found if number is not None]


def partition_numbers(option: str, text: str) -> frozenset[int]:
    """`0,3-5` → 0, 3, 4, 5; empty: none, which callers take for all. UsageError, also where other text names none."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not all(each.isascii() and each.isdigit() and len(each) < 7 for each in (first, last)):
            raise click.UsageError(f"{option} '{text}' is not understood; give for example 0,3-5")
        if int(first) > int(last):
            raise click.UsageError(f"{option} '{text}': {first}-{last} ends before it begins; give {last}-{first}")
        numbers.update(range(int(first), int(last) + 1))
    if text and not numbers:
        raise click.UsageError(f"{option} '{text}' names no partition; give for example 0,3-5")
    return frozenset(numbers)


def moment_ms(option: str, text: str | None, now_ms: int) -> int | None:
    """`-2h`, a date, ms since 1970 → ms since 1970. UsageError."""
    from strandline.cli.offset_range import InvalidOffset, parse_time

    if text is None:
        return None
    try:
        return parse_time(text, now_ms)
    except InvalidOffset as error:
        raise click.UsageError(f"{option}: {error}") from None


def topic_option(help_text: str) -> Callable[[F], F]:
    """`-t/--topic NAME`, one and required."""
    return click.option(
        "-t", "--topic", required=True, help=help_text, callback=lambda ctx, parameter, value: legal_topic(value)
    )


def settings_option(function: F) -> F:
    """`-X key=value`, as often as wanted."""
    return click.option(
        "-X",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A client setting by its Kafka name, for example -X linger.ms=20; may be repeated.",
    )(function)


def acks_option(function: F) -> F:
    """`--acks`, of what sends."""
    return click.option(
        "--acks",
        type=click.Choice(["all", "-1", "1", "0"]),
        default="all",
        show_default=True,
        help="With all, no record stands twice, however often it was sent.",
    )(function)


def compression_option(function: F) -> F:
    """`-z/--compression`, of what sends."""
    return click.option(
        "-z",
        "--compression",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none",
        show_default=True,
    )(function)


def output_option(function: F) -> F:
    """`--output text|json`. Failures have the same shape then (`main`)."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        is_eager=True,
        callback=_keep_output,
        help="json is for programs and keeps its shape; text may change.",
    )(function)


def _keep_output(ctx: click.Context, parameter: click.Parameter, output: str) -> str:
    line = session_of(ctx).line
    line.as_json = line.as_json or output == "json"
    line.command = ".".join(ctx.command_path.split()[1:])
    return output


def page_option(function: F) -> F:
    """`--page FILE`. UsageError where it cannot be written: that is not to come out after the work."""
    return click.option(
        "--page",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        help="Write an HTML page.",
        callback=lambda ctx, parameter, path: _in_a_folder(path),
    )(function)


def _in_a_folder(path: Path | None) -> Path | None:
    if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise click.UsageError(f"--page {path}: there is no folder {path.parent} in which files can be made")
    return path


def show_json(command: str, **fields: object) -> None:
    """What a command answers to programs: one object, and nothing else on stdout."""
    session_of(click.get_current_context()).line.is_answered = True
    click.echo(json.dumps({"_command": command, "_version": JSON_VERSION, **fields}, indent=2))


def defaults_option(help_text: str) -> Callable[[F], F]:
    """--defaults FILE: keys that an image brings."""
    return click.option(
        "-d", "--defaults", type=click.File("rb"), envvar="STRANDLINE_DEFAULTS", metavar="FILE", help=help_text
    )


def properties_of(file: IO[bytes] | None) -> dict[str, str]:
    """The keys of a properties file; without one there are none. InvalidConfig: a line that is none."""
    from strandline.runtime.config.properties import parse_properties

    if file is None:
        return {}
    try:
        return parse_properties(file.read().decode())
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def no_such_broker(where: str, broker_id: int, running: Collection[int]) -> click.UsageError:
    """What to raise for an id that no living broker has: it is wrong, and nobody would answer. where: what names it."""
    known = ", ".join(map(str, sorted(running)))
    return click.UsageError(f"{where}: there is no broker {broker_id} that runs; those are {known}")


def key_value(text: str, option: str) -> tuple[str, str]:
    """Split `key=value`; raises UsageError naming the option."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.UsageError(f"{option} '{text}' is not KEY=VALUE")
    return key.strip(), value


def admin_of(
    ctx: click.Context, bootstrap: str | None, settings: Iterable[str], timeout_ms: int, **defaults: int
) -> Admin:
    """The admin client that these options ask for. defaults: of settings, unless they have them."""
    session = session_of(ctx)
    limits = {"default_api_timeout_ms": timeout_ms, **defaults, **client_settings(settings)}
    return session.admin(bootstrap_of(session, bootstrap), **limits)


def consumer_of(ctx: click.Context, bootstrap: str | None, settings: Iterable[str], timeout_ms: int) -> Consumer:
    """A consumer that these options ask for, to ask for offsets."""
    session = session_of(ctx)
    limits = {"default_api_timeout_ms": timeout_ms, **client_settings(settings)}
    return session.consumer(bootstrap_of(session, bootstrap), **limits)


LOOK_TIMEOUT_MS = 10_000
"""How long a person should wait for an answer, or for the reason why there is none."""


def ask_cluster(ctx: click.Context, servers: str, settings: Iterable[str]) -> None:
    """Before a long start: whether anybody answers there. NoBrokerReachable, RequestTimedOut after some seconds.
    settings: `-X` of any client; what not every client has is passed over."""
    limits = {"default_api_timeout_ms": LOOK_TIMEOUT_MS, **common_settings(settings)}
    with session_of(ctx).admin(servers, **limits) as admin:
        admin.describe_cluster()


def common_settings(pairs: Iterable[str]) -> dict[str, object]:
    """Those of `-X key=value` that every client has, for another one beside the one that they are for."""
    from strandline.client.settings import ClientSettings

    common = {each.name for each in dataclasses.fields(ClientSettings)}
    given = {setting_name(key): value for key, value in client_settings(pairs).items()}
    return {key: given[key] for key in given if key in common}


def partitions_of(
    admin: Admin,
    topic: str,
    partition: int | None,
    is_meant: Callable[[PartitionView], bool] = lambda partition: True,
) -> list[TopicPartition]:
    """The partition; without a number all of the topic's that are meant."""
    from strandline.protocol.types import TopicPartition

    if partition is not None:
        return [TopicPartition(topic, partition)]
    found = admin.describe_topics([topic])[topic].partitions
    return [TopicPartition(topic, number) for number in sorted(found) if is_meant(found[number])]


_OF_PROGRAMS = (
    *("environment", "on_batch", "identity", "partitioner"),
    *("key_serializer", "value_serializer", "key_deserializer", "value_deserializer"),
)

TEXTS = ("client_id", "client_rack", "group_id", "group_instance_id")
"""The settings that may be any text."""


def setting_name(key: str) -> str:
    """As clients name it: dots and hyphens count as underscores."""
    return key.replace(".", "_").replace("-", "_")


def key_of_setting(settings: Iterable[str], name: str) -> str | None:
    """How the setting is written there, if it is."""
    return next((key for key in settings if setting_name(key) == name), None)


def client_settings(pairs: Iterable[str]) -> dict[str, object]:
    """`-X linger.ms=20` becomes the keyword argument `linger.ms`, which the clients understand and call it by in their
    errors; numbers and booleans become such, but for settings that are texts: a rack or client may be called 1."""
    settings: dict[str, object] = {}
    seen: set[str] = set()
    for pair in pairs:
        key, value = key_value(pair, "-X")
        name = setting_name(key)
        if name in seen:
            raise click.UsageError(f"-X {key} is given twice")
        if name == "bootstrap_servers":
            raise click.UsageError(f"-X {key} is not for naming a cluster: say -b/--bootstrap, or --data")
        if name in _OF_PROGRAMS:
            raise click.UsageError(f"-X {key} can only be set in a program: its value is an object of Python's")
        seen.add(name)
        settings[key] = value if name in TEXTS else parsed_value(value)
    return settings


def parsed_value(text: str) -> object:
    """A number or a boolean where `text` is one, else the text."""
    stripped = text.strip()
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    for kind in (int, float):
        try:
            return kind(stripped)
        except ValueError:
            continue
    return text
