"""What requests about quotas name: entities by their parts, and filters over them. Pure.

Source of the rules: ZkAdminManager.handleDescribeClientQuotas and AlterClientQuotas of Kafka 3.9, KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.broker.quotas.entities import DEFAULT, QuotaEntity, address_at, decoded, encoded, encoded_ip
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import CLIENT_ID, IP, USER, QuotaComponent, QuotaEntityData, QuotaMatch

TYPES = (USER, CLIENT_ID, IP)


def entity_of(parts: Sequence[QuotaEntityData]) -> QuotaEntity:
    """The entity with these parts. BrokerError INVALID_REQUEST: there is none such."""
    names: dict[str, str] = {}
    for part in parts:
        _check_type(part.entity_type, names)
        if part.entity_name == "":
            raise _invalid(f"the name of a {part.entity_type} is empty; leave it out for the default")
        names[part.entity_type] = DEFAULT if part.entity_name is None else _encoded(part.entity_type, part.entity_name)
    if not names:
        raise _invalid("a quota is of a user, a client-id or an ip: none is named")
    if IP in names and len(names) > 1:
        raise _invalid("an ip stands alone: it has no quota together with a user or a client-id")
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def parts_of(entity: QuotaEntity) -> list[QuotaEntityData]:
    named = zip(TYPES, entity, strict=True)
    return [
        QuotaEntityData(kind, None if name == DEFAULT else decoded(name)) for kind, name in named if name is not None
    ]


class EntityFilter(NamedTuple):
    """components: type → the encoded name, or None: any."""

    components: dict[str, str | None]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        for kind, name in zip(TYPES, entity, strict=True):
            if kind not in self.components:
                if self.strict and name is not None:
                    return False
            elif name is None or self.components[kind] not in (None, address_at(name) if kind == IP else name):
                return False
        return True


def filter_of(components: Iterable[QuotaComponent], strict: bool) -> EntityFilter:
    """BrokerError INVALID_REQUEST."""
    wanted: dict[str, str | None] = {}
    for each in components:
        _check_type(each.entity_type, wanted)
        if each.match_type == QuotaMatch.EXACT and each.match is not None:
            wanted[each.entity_type] = _encoded(each.entity_type, each.match)
        elif each.match_type == QuotaMatch.DEFAULT and each.match is None:
            wanted[each.entity_type] = DEFAULT
        elif each.match_type == QuotaMatch.ANY and each.match is None:
            wanted[each.entity_type] = None
        else:
            text = "an exact one (0) with a name, the default (1) or any (2) without"
            raise _invalid(f"match type {each.match_type} of {each.entity_type}: allowed is {text}")
    if IP in wanted and len(wanted) > 1:
        raise _invalid("an ip stands alone: no entity has it together with a user or a client-id")
    return EntityFilter(wanted, strict)


def _check_type(kind: str, named: dict[str, str] | dict[str, str | None]) -> None:
    if kind not in TYPES:
        text = f"there is no quota of {kind[:100]!r}; allowed is {', '.join(TYPES)}"
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST, text)
    if kind in named:
        raise _invalid(f"{kind} is named twice")


def _encoded(kind: str, name: str) -> str:
    return encoded_ip(name) if kind == IP else encoded(name)


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
