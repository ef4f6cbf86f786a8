"""The reference page of the configuration, `docs/configuration.md`, made from the declared keys and from nothing else.

`strandline broker --reference` prints it, `make docs` writes it; a test says when the file is stale. Rules: one row per
key, in the order of `broker`, a section per group; a broker's key names the topic's key that overrides it, and the
other way round; what this version reads and does not act on says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.runtime.config.broker import BROKER_KEYS, LATER_PREFIXES, REPLACED_KEYS
from strandline.runtime.config.keys import ConfigKey
from strandline.runtime.config.listener_keys import OF_LISTENERS
from strandline.runtime.config.topic import TOPIC_KEYS

_INTRODUCTION = """\
# Configuration

Made by `make docs` from `runtime/config/broker.py` and `runtime/config/topic.py`; the installed version's own page:
`strandline broker --reference`.

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

_SECTIONS = {
    "broker.id": "Identity",
    "listeners": "Listeners",
    "num.network.threads": "Network",
    "zookeeper.connect": "ZooKeeper",
    "auto.create.topics.enable": "Topics and controller",
    "num.replica.fetchers": "Replication",
    "log.dirs": "Logs",
    "group.min.session.timeout.ms": "Groups",
    "transaction.state.log.num.partitions": "Transactions and producers",
    "quota.producer.default": "Quotas and metrics",
}
"""The first key of each → its title."""

_TOPICS = """\
What may be set per topic (`strandline topics create --config KEY=VALUE`). Where a topic does not say, its broker's key
counts, with its default. All of them are dynamic."""

_OF_LISTENERS = """\
NAME is that of a listener, in lower case."""

_FAMILIES = """\
Known to Kafka and not acted on by this version, whatever follows the prefix: {prefixes}."""


def reference() -> str:
    """All keys as a page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    overrides = {key.broker_attribute: name for name, key in TOPIC_KEYS.items()}
    yield from ("", "## Broker keys")
    for name, key in BROKER_KEYS.items():
        if name in _SECTIONS:
            yield from ("", f"### {_SECTIONS[name]}", "")
            yield from _head("key", "type", "default", "unit", "allowed", "per topic", "dynamic", "honoured", "meaning")
        yield _row(*_facts(key), _code(overrides.get(key.attribute)), *_states(key), key.meaning)
    yield from ("", "### Other spellings", "", *_head("key", "write instead"))
    yield from (_row(_code(old), _code(new)) for old, new in REPLACED_KEYS.items())
    yield from ("", "### Keys of one listener", "", _OF_LISTENERS, "", *_head("key", "dynamic", "meaning"))
    yield from (_row(_code(key.format("NAME")), "yes", doc) for key, doc in OF_LISTENERS.items())
    yield from ("", _FAMILIES.format(prefixes=", ".join(f"`{prefix}`" for prefix in LATER_PREFIXES)))
    yield from ("", "## Topic keys", "", _TOPICS, "")
    yield from _head("key", "type", "default", "unit", "allowed", "broker key", "honoured", "meaning")
    named = {key.attribute: name for name, key in BROKER_KEYS.items()}
    for key in TOPIC_KEYS.values():
        yield _row(*_facts(key), _code(named.get(key.broker_attribute or "")), _states(key)[1], key.meaning)


def _head(*names: str) -> tuple[str, str]:
    return _row(*names), "|" + "---|" * len(names)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _facts(key: ConfigKey) -> tuple[str, ...]:
    return _code(key.name), key.kind.name, key.default_text, key.unit, key.allowed.text


def _states(key: ConfigKey) -> tuple[str, str]:
    dynamic = ("yes" if key.live else "at the start") if key.dynamic else ""
    return dynamic, "yes" if key.honoured else "no" if key.why_not else "not yet"


def _code(name: str | None) -> str:
    return f"`{name}`" if name else ""
