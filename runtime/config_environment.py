"""A broker's configuration from environment variables, as containers are configured.

The name of a variable is a prefix and the key by Kafka's rule: `_` stands for a dot, `__` for an underscore, `___` for
a hyphen, so `STRANDLINE_LOG_DIRS` is `log.dirs`. Prefixes, the first one wins where two variables mean one key:
`STRANDLINE_`, `KAFKA_CFG_` and `KAFKA_` (so that compose files of Kafka images carry over). Variables that tell a JVM
or an image what to do are not keys and are left out, as are the `strandline` command's own (`STRANDLINE_DATA` …).
As in those images `listeners` follows from `advertised.listeners` where it is left out: the same ports, on every
interface.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PREFIXES = ("STRANDLINE_", "KAFKA_CFG_", "KAFKA_")

_OF_THE_COMMAND = frozenset({"STRANDLINE_BOOTSTRAP", "STRANDLINE_DATA", "STRANDLINE_DEBUG"})

_OF_A_JVM_OR_IMAGE = re.compile(
    r"KAFKA_(HEAP_OPTS|OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|DEBUG|HOME|VERSION|MODE|JMX_.*|LOG4J_.*|TOOLS_LOG4J_.*"
    r"|ENABLE_KRAFT|KRAFT_.*|CLUSTER_ID|EXTRA_FLAGS)"
)
_UNDERSCORES = {"_": ".", "__": "_", "___": "-"}


def properties_from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Key → text, as `load_broker_config` takes it; keys that nobody knows stay in, to be warned about there.

    Empty values count as not set: that is how compose files switch a variable off."""
    properties: dict[str, str] = {}
    for prefix in reversed(_PREFIXES):
        for name in sorted(variables):
            if _first_prefix(name) == prefix and variables[name].strip() and not _is_no_key(name):
                properties[_key(name.removeprefix(prefix))] = variables[name]
    told = properties.get("advertised.listeners")
    if told is not None and "listeners" not in properties:
        properties["listeners"] = ",".join(_on_every_interface(entry.strip()) for entry in told.split(","))
    return properties


def _first_prefix(name: str) -> str | None:
    return next((prefix for prefix in _PREFIXES if name.startswith(prefix) and name != prefix), None)


def _is_no_key(name: str) -> bool:
    return name in _OF_THE_COMMAND or _OF_A_JVM_OR_IMAGE.fullmatch(name) is not None


def _key(rest: str) -> str:
    return re.sub("_{1,3}", lambda run: _UNDERSCORES[run[0]], rest).lower()


def _on_every_interface(entry: str) -> str:
    """An entry without an address stays as it is: it is refused by its own text."""
    name, separator, address = entry.partition("://")
    return f"{name}{separator}0.0.0.0:{address.rpartition(':')[2]}" if separator else entry
