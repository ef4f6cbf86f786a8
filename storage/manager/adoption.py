"""What `meta.properties` notes of the looks through folders that another program may have written.

```
strandline.adopted             1 once every log of the directory was looked through, or refused
strandline.refused             the logs that were refused then: they stay another program's, by name
strandline.refused.in.order    those of them that had been stopped in order: nothing was written to them since
```
A Kafka that has the directory in between makes all of it void.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from strandline.protocol.types import TopicPartition

_ADOPTED = "strandline.adopted"
_REFUSED = "strandline.refused"
_IN_ORDER = "strandline.refused.in.order"
_KEYS = (_ADOPTED, _REFUSED, _IN_ORDER)
MAX_REFUSED_BYTES = 2**18
"""Of their names; more of them, and the whole directory stays foreign."""


def without_adoption(meta: Mapping[str, str]) -> dict[str, str]:
    """The same of a directory that another program had."""
    return {key: value for key, value in meta.items() if key not in _KEYS}


def with_adoption(
    meta: Mapping[str, str], refused: Collection[TopicPartition], in_order: Collection[TopicPartition]
) -> dict[str, str]:
    """The same of a directory that was looked through. in_order: those of the refused ones that were stopped so."""
    adopted = without_adoption(meta)
    names = _joined(refused)
    if len(names) > MAX_REFUSED_BYTES:
        return adopted
    noted = {_ADOPTED: "1", _REFUSED: names, _IN_ORDER: _joined(in_order)}
    return adopted | {key: value for key, value in noted.items() if value}


def is_adopted(meta: Mapping[str, str], tp: TopicPartition) -> bool:
    """Whether that log was looked through, and taken."""
    return _ADOPTED in meta and str(tp) not in meta.get(_REFUSED, "").split(",")


def was_in_order(meta: Mapping[str, str], tp: TopicPartition) -> bool:
    """Whether it was refused, and is as an orderly stop left it."""
    return str(tp) in meta.get(_IN_ORDER, "").split(",")


def _joined(logs: Collection[TopicPartition]) -> str:
    return ",".join(map(str, sorted(logs)))
