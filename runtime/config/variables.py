"""A broker's configuration from environment variables, as containers are configured.

The name of a variable is a prefix and the key by Kafka's rule: `_` stands for a dot, `__` for an underscore, `___` for
a hyphen, so `STRANDLINE_LOG_DIRS` is `log.dirs`. Prefixes, the first one wins where two variables mean one key:
`STRANDLINE_`, `KAFKA_CFG_` and `KAFKA_` (so that compose files of Kafka images carry over). Variables that tell a JVM
or an image what to do are not keys and are left out, as are the `strandline` command's own (`STRANDLINE_DATA` …), the
tag that compose files give the image (`STRANDLINE_VERSION`), and those by which Kubernetes and Docker's links tell
where a service named strandline is (`STRANDLINE_PORT` …).

As in those images `listeners` follows from `advertised.listeners` where it is left out: the same ports, on every
interface; and a listener without a host (`PLAINTEXT://:9092`) is on every interface, while it is loopback in a file:
loopback inside a container is where nobody is.

A key that nobody knows: behind Kafka's prefixes it may be meant for another image, and is warned about as one of a
file is. Behind our own it can only be a mistake, where nobody looks once the containers run: it is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from strandline.runtime.config.broker import BROKER_KEYS, LATER_PREFIXES, REPLACED_KEYS
from strandline.runtime.config.values import InvalidConfig

_OWN_PREFIX = "STRANDLINE_"
_PREFIXES = (_OWN_PREFIX, "KAFKA_CFG_", "KAFKA_")

_OF_THE_COMMAND = frozenset(
    {"STRANDLINE_BOOTSTRAP", "STRANDLINE_DATA", "STRANDLINE_DEBUG", "STRANDLINE_DEFAULTS", "STRANDLINE_VERSION"}
)

_OF_A_JVM_OR_IMAGE = re.compile(
    r"KAFKA_(HEAP_OPTS|OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|DEBUG|HOME|VERSION|MODE|JMX_.*|LOG4J_.*|TOOLS_LOG4J_.*"
    r"|ENABLE_KRAFT|KRAFT_.*|CLUSTER_ID|EXTRA_FLAGS)"
)
_OF_A_SERVICE = re.compile(r"STRANDLINE_(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?|NAME|ENV_.*)")
_ANY_HOST = re.compile(r"\A([^:]*)://(?:.*:)?([^:]*)\Z")
_NO_HOST = re.compile(r"\A([^:]*)://:([^:]*)\Z")
_UNDERSCORES = {"_": ".", "__": "_", "___": "-"}
_SIGNS = {sign: underscores for underscores, sign in _UNDERSCORES.items()}


def properties_from_environment(
    variables: Mapping[str, str], beneath: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Key → text, as `load_broker_config` takes it. Of unknown keys Kafka's stay in, to be warned about there.
    beneath: the keys of a file that the variables win over; `listeners` that stand there do not follow from anything.

    Empty values count as not set: that is how compose files switch a variable off. InvalidConfig: a variable of our own
    prefix stands for no key."""
    properties: dict[str, str] = {}
    for key, name in _variables_of_keys(variables):
        if name.startswith(_OWN_PREFIX):
            _require_known(name, key, variables[name])
        properties[key] = variables[name]
    bound, told = properties.get("listeners"), properties.get("advertised.listeners")
    if bound is not None:
        properties["listeners"] = ",".join(_on_every_interface(entry.strip(), _NO_HOST) for entry in bound.split(","))
    elif told is not None and "listeners" not in (beneath or {}):
        properties["listeners"] = ",".join(_on_every_interface(entry.strip()) for entry in told.split(","))
    return properties


def contradictions(variables: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that loses against another one with another value, which may be a secret."""
    winners = dict(_variables_of_keys(variables))
    for key, name in _variables_of_keys(variables):
        if variables[name] != variables[winners[key]]:
            yield f"{name} has no effect: {winners[key]}, which has another value, wins"


def value_from_environment(variables: Mapping[str, str], wanted: str) -> str | None:
    """What the variables say of one key; the others are not judged."""
    name = dict(_variables_of_keys(variables)).get(wanted)
    return variables[name] if name is not None else None


def _variables_of_keys(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(key, variable) of those that are set; of two with one key the later wins."""
    for prefix in reversed(_PREFIXES):
        for name in sorted(variables):
            if _first_prefix(name) == prefix and variables[name].strip() and not _is_no_key(name):
                yield _key(name.removeprefix(prefix)), name


def _first_prefix(name: str) -> str | None:
    return next((prefix for prefix in _PREFIXES if name.startswith(prefix) and name != prefix), None)


def _is_no_key(name: str) -> bool:
    return name in _OF_THE_COMMAND or any(each.fullmatch(name) for each in (_OF_A_JVM_OR_IMAGE, _OF_A_SERVICE))


def _require_known(name: str, key: str, value: str) -> None:
    if key in BROKER_KEYS or key in REPLACED_KEYS or key.startswith(LATER_PREFIXES):
        return
    near = difflib.get_close_matches(key, BROKER_KEYS, n=1)
    meant = f"did you mean {variable_of(near[0])}?" if near else "see strandline broker --reference for those there are"
    raise InvalidConfig(name, value, f"there is no key {key}; {meant}")


def variable_of(key: str) -> str:
    """Our name for it."""
    return _OWN_PREFIX + re.sub("[._-]", lambda sign: _SIGNS[sign[0]], key).upper()


def _key(rest: str) -> str:
    return re.sub("_{1,3}", lambda run: _UNDERSCORES[run[0]], rest).lower()


def _on_every_interface(entry: str, which: re.Pattern[str] = _ANY_HOST) -> str:
    """An entry without an address stays as it is: it is refused by its own text."""
    return which.sub(r"\1://0.0.0.0:\2", entry)
