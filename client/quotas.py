"""What the admin client does with quotas of users, client ids and addresses: they are described and altered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from strandline.client.errors import BrokerMisbehaved, error_for
from strandline.protocol.messages import (
    CLIENT_ID,
    IP,
    USER,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotaEntry,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
    QuotaComponent,
    QuotaEntityData,
    QuotaMatch,
    QuotaOperation,
    Request,
)

Ask = Callable[[Request, type[Message]], Awaitable[Message]]


class EveryName:
    """Stands for whoever has no quota of their own (`DEFAULT_ENTITY`)."""

    def __repr__(self) -> str:
        return "DEFAULT_ENTITY"


DEFAULT_ENTITY: Final = EveryName()
Name = str | EveryName | None
"""Of a user, a client id or an address; None: it does not matter."""


class QuotaOwner(NamedTuple):
    """Whose quota: of a user, a client id, both together, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def __str__(self) -> str:
        parts = zip((USER, CLIENT_ID, IP), self, strict=True)
        return ", ".join(_part_text(kind, name) for kind, name in parts if name is not None) or "nobody"


ANYBODY: Final = QuotaOwner()


async def describe_quotas(owner: QuotaOwner, strict: bool, ask: Ask) -> dict[QuotaOwner, dict[str, float]]:
    """Of those that match what is given of `owner`; strict: and have nothing else. AnsweredError."""
    components = [
        QuotaComponent(kind, QuotaMatch.DEFAULT) if isinstance(name, EveryName) else QuotaComponent(kind, 0, name)
        for kind, name in zip((USER, CLIENT_ID, IP), owner, strict=True)
        if name is not None
    ]
    answer = await ask(DescribeClientQuotasRequest(components, strict), DescribeClientQuotasResponse)
    if not isinstance(answer, DescribeClientQuotasResponse):
        raise BrokerMisbehaved("describing quotas: the answer is another one")
    if answer.error_code:
        raise error_for(answer.error_code, "describing quotas", detail=answer.error_message)
    return {_owner(entry.entity): {value.key: value.value for value in entry.values} for entry in answer.entries or ()}


async def alter_quotas(owner: QuotaOwner, changes: Mapping[str, float | None], validate_only: bool, ask: Ask) -> None:
    """changes: key → value, None: it is no longer set. AnsweredError."""
    entity = [
        QuotaEntityData(kind, None if isinstance(name, EveryName) else name)
        for kind, name in zip((USER, CLIENT_ID, IP), owner, strict=True)
        if name is not None
    ]
    operations = [QuotaOperation(key, 0.0 if value is None else value, value is None) for key, value in changes.items()]
    request = AlterClientQuotasRequest([AlterQuotaEntry(entity, operations)], validate_only)
    answer = await ask(request, AlterClientQuotasResponse)
    if not isinstance(answer, AlterClientQuotasResponse) or len(answer.entries) != 1:
        raise BrokerMisbehaved("altering quotas: the answer is incomplete")
    [result] = answer.entries
    if result.error_code:
        raise error_for(result.error_code, f"altering the quotas of {owner}", detail=result.error_message)


def _owner(parts: list[QuotaEntityData]) -> QuotaOwner:
    names: dict[str, Name] = {
        part.entity_type: DEFAULT_ENTITY if part.entity_name is None else part.entity_name for part in parts
    }
    return QuotaOwner(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _part_text(kind: str, name: Name) -> str:
    return f"{kind} default" if isinstance(name, EveryName) else f"{kind} {name}"
