"""The reference page of the configuration, `docs/configuration.md`, made from the table and from nothing else.

`strandline broker --reference` prints it, `make docs` writes it; a test says when the file is stale. Rules: one row per
key, in the order of the table, a section per group; a broker's key names the topic's key that overrides it, and the
other way round; what this version reads and does not act on says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.runtime.config.table_logs import BROKER_KEY, LATER_PREFIXES, REPLACED_KEYS, SECTIONS
from strandline.runtime.config.topic import TOPIC_KEYS
from strandline.runtime.config.values import ConfigKey

_INTRODUCTION = """\
# Configuration

Made by `make docs` from the table in `runtime/config/table.py` and `runtime/config/table_logs.py`; the installed
version's own page: `strandline broker --reference`.

A broker reads a Java properties file (`strandline broker --config server.properties`) and `--override KEY=VALUE` on top
of it. Names and units are Kafka's; so are the defaults, and where one differs from Kafka 3.9 the row says what Kafka
has. A value that is not allowed stops the start with one line that names key, value and what is allowed; a key that is
not known, or that this version does not act on, is a warning.

* *default*: empty where the key is left out and another key or a rule of the row stands in for it.
* *type*: int has 32 bits, long 64; a list is comma separated.
* *dynamic*: it may stand in ZooKeeper, over the file: in `/config/brokers/<id>` for one broker, else in
  `/config/brokers/<default>` for all. A change there takes effect at once, or, where it says so, at the next start.
  Other keys there are named in the broker's log and have no effect.
* *honoured*: whether this version acts on it."""

_TOPICS = """\
What may be set per topic (`strandline topics create --config KEY=VALUE`). Where a topic does not say, its broker's key
counts, with its default. All of them are dynamic."""

_FAMILIES = """\
Known to Kafka and not acted on by this version, whatever follows the prefix: {prefixes}."""


def reference() -> str:
    """All keys as a page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    overrides = {row.broker_attribute: row.key.name for row in TOPIC_KEYS}
    yield from ("", "## Broker keys")
    for title, keys in SECTIONS.items():
        yield from ("", f"### {title}", "")
        yield from _table(
            ("key", "type", "default", "unit", "allowed", "per topic", "dynamic", "honoured", "meaning"),
            ((*_facts(key), _code(overrides.get(key.attribute)), *_states(key), key.doc) for key in keys),
        )
    yield from ("", "### Other spellings", "")
    yield from _table(("key", "write instead"), ((_code(old), _code(new)) for old, new in REPLACED_KEYS.items()))
    yield from ("", _FAMILIES.format(prefixes=", ".join(f"`{prefix}`" for prefix in LATER_PREFIXES)))
    yield from ("", "## Topic keys", "", _TOPICS, "")
    named = {key.attribute: key.name for key in BROKER_KEY.values()}
    yield from _table(
        ("key", "type", "default", "unit", "allowed", "broker key", "honoured", "meaning"),
        (
            (*_facts(row.key), _code(named.get(row.broker_attribute or "")), _states(row.key)[1], row.key.doc)
            for row in TOPIC_KEYS
        ),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _facts(key: ConfigKey) -> tuple[str, ...]:
    return _code(key.name), key.kind, key.default_text, key.unit, key.allowed.text


def _states(key: ConfigKey) -> tuple[str, str]:
    dynamic = ("yes" if key.live else "at the start") if key.dynamic else ""
    return dynamic, "yes" if key.honoured else "not yet"


def _code(name: str | None) -> str:
    return f"`{name}`" if name else ""
