"""The JSON files of Kafka's tools: read without trust, written so that those tools read them.

    {"version": 1, "partitions": [{"topic", "partition", "replicas": [1, 2], "log_dirs": ["any", "any"]}]}
    {"version": 1, "topics": [{"topic"}]}                        which topics are to be moved
    {"partitions": [{"topic", "partition"}]}                     whose leaders are to be elected

`version` may be missing, and `log_dirs`, too. What a Kafka 4's tool prints names the directories in which replicas lie;
they are passed over, which is said, since brokers choose. Whatever else is in a file is a UsageError of one line that
names the file, the place in it, and what is wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.options import legal_topic
from strandline.cli.wording import sized
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

F = TypeVar("F", bound=Callable[..., Any])
MAX_FILE_BYTES = 16 * 2**20
FILE_VERSION = 1
ANY_DIR = "any"
_INT32_MAX = 2**31 - 1
_MOST_SHOWN = 80

Assignment = dict[TopicPartition, tuple[int, ...]]
"""Partition → its replicas, preferred first."""


def read_assignment(path: Path) -> Assignment:
    """The partitions of a file, in its order. UsageError."""
    found: Assignment = {}
    has_directories = False
    for where, entry, tp in _partitions(path, {"replicas", "log_dirs"}):
        replicas = _replicas(where, entry.get("replicas"))
        has_directories = _names_log_dirs(where, entry.get("log_dirs"), len(replicas)) or has_directories
        found[tp] = replicas
    if has_directories:
        click.echo(
            f"strandline: {path} names log_dirs, which are passed over: brokers choose the directories", err=True
        )
    return found


def read_partitions(path: Path) -> list[TopicPartition]:
    """As above, of a file that names partitions only."""
    return [tp for _, _, tp in _partitions(path, set())]


def read_topics(path: Path) -> list[str]:
    """The topics of a topics-to-move file. UsageError."""
    found: dict[str, None] = {}
    for where, entry in _entries(path, "topics", {"topic"}):
        topic = _topic(where, entry.get("topic"))
        if topic in found:
            raise click.UsageError(f"{where}: topic {topic} is named twice")
        found[topic] = None
    return list(found)


def read_json(path: Path) -> Any:
    """What a file holds. UsageError for one that is too large, no JSON, or names a key twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                raise click.UsageError(f"{path}: the key {_shown(key)} is there twice in the same object")
            seen[key] = value
        return seen

    try:
        with path.open("rb") as file:  # which may be a pipe
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise click.UsageError(f"{path} is larger than {sized(MAX_FILE_BYTES)}")
        if not content.strip():
            raise click.UsageError(f"{path} is empty")
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise click.UsageError(f"{path} is no JSON: {error}") from None
    except (ValueError, RecursionError):
        raise click.UsageError(f"{path} is no JSON for us: a number is too long, or lists lie too deep") from None


def assignment_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """One line, as Kafka's tool writes it."""
    return json.dumps({"version": FILE_VERSION, "partitions": _as_entries(assignment)}, separators=(",", ":"))


def write_assignment(path: Path, assignment: Mapping[TopicPartition, Sequence[int]]) -> None:
    """A partition a line, so that people can edit it; there as a whole or not at all. ClickException."""
    lines = [json.dumps(entry, separators=(",", ":")) for entry in _as_entries(assignment)]
    text = f'{{"version":{FILE_VERSION},"partitions":[\n' + ",\n".join(lines) + "\n]}\n"
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None


def _as_entries(assignment: Mapping[TopicPartition, Sequence[int]]) -> list[dict[str, Any]]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIR] * len(replicas),
        }
        for tp, replicas in assignment.items()
    ]


# --- Checks ----------------------------------------------------------------------------------------------------------


def _partitions(path: Path, further: Collection[str]) -> Iterable[tuple[str, Mapping[str, Any], TopicPartition]]:
    """Place, entry and partition of each element of `partitions`."""
    seen: set[TopicPartition] = set()
    for where, entry in _entries(path, "partitions", {"topic", "partition", *further}):
        topic = _topic(where, entry.get("topic"))
        number = entry.get("partition")
        if type(number) is not int or not 0 <= number <= _INT32_MAX:
            raise click.UsageError(f"{where}: partition {_shown(number)} is no number of a partition")
        tp = TopicPartition(topic, number)
        if tp in seen:
            raise click.UsageError(f"{where}: {tp} is named twice")
        seen.add(tp)
        yield f"{where} ({tp})", entry, tp


def _entries(path: Path, name: str, known: Collection[str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get(name), list):
        raise click.UsageError(f'{path} is not {{"version": {FILE_VERSION}, "{name}": […]}}')
    if (version := content.get("version", FILE_VERSION)) != FILE_VERSION or type(version) is not int:
        raise click.UsageError(f"{path}: version {_shown(version)} is not known; this is version {FILE_VERSION}")
    _refuse_unknown(f"{path}", content, {name, "version"})
    if not content[name]:
        raise click.UsageError(f"{path}: {name} is empty")
    for place, entry in enumerate(content[name]):
        where = f"{path}: {name}[{place}]"
        if not isinstance(entry, dict):
            raise click.UsageError(f"{where} is no object but {_shown(entry)}")
        _refuse_unknown(where, entry, known)
        yield where, entry


def _refuse_unknown(where: str, found: Mapping[str, Any], known: Collection[str]) -> None:
    for key in found:
        if key not in known:
            raise click.UsageError(f"{where}: unknown field {_shown(key)}; known are {', '.join(sorted(known))}")


def _topic(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise click.UsageError(f"{where}: topic {_shown(value)} is no name")
    try:
        return legal_topic(value)
    except click.UsageError as error:
        raise click.UsageError(f"{where}: {error.message}") from None


def _replicas(where: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise click.UsageError(f"{where}: replicas {_shown(value)} is no list of broker ids")
    if not value:
        raise click.UsageError(f"{where}: replicas is empty; name at least one broker")
    seen: dict[int, None] = {}
    for each in value:
        if type(each) is not int or not 0 <= each <= _INT32_MAX:
            raise click.UsageError(f"{where}: replicas has {_shown(each)}, which is no broker id")
        if each in seen:
            raise click.UsageError(f"{where}: replicas names broker {each} twice")
        seen[each] = None
    return tuple(seen)


def _names_log_dirs(where: str, value: object, replicas: int) -> bool:
    """Whether a directory is named."""
    if value is None:
        return False
    if not isinstance(value, list) or len(value) != replicas:
        raise click.UsageError(f"{where}: log_dirs has to name one directory for each of {replicas} replicas")
    for each in value:
        if each != ANY_DIR and not (isinstance(each, str) and each.startswith("/")):
            raise click.UsageError(
                f'{where}: log_dirs has {_shown(each)}, which is neither "{ANY_DIR}" nor a full path'
            )
    return any(each != ANY_DIR for each in value)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


# --- The option of a plan --------------------------------------------------------------------------------------------


def plan_argument(function: F) -> F:
    """The file, as an argument or as Kafka's tool has it; `path` None where neither is given."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    function = click.argument("path", required=False, type=file, metavar="[FILE]")(function)
    return click.option("--reassignment-json-file", "option_path", type=file, help="As FILE, for Kafka's habit.")(
        function
    )


def one_path(path: Path | None, option_path: Path | None) -> Path | None:
    if path is not None and option_path is not None:
        raise click.UsageError("give either FILE or --reassignment-json-file FILE")
    return path or option_path
