"""What the admin client does with quotas of users, client ids and addresses: they are described and altered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from strandline.client.errors import BrokerMisbehaved, error_for
from strandline.client.metadata import Metadata
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
        return ", ".join(_part_text(kind, name) for kind, name in _named(self)) or "nobody"


ANYBODY: Final = QuotaOwner()


class QuotaAdministration(ABC):
    """The part of `TrioAdmin` that describes and alters quotas."""

    _metadata: Metadata

    def was_reached(self) -> bool:
        """Whether a broker has told its versions yet, with which each connection begins: what is asked next may have to
        wait because of a quota."""
        return self._metadata.bootstrap.was_reached

    @abstractmethod
    def _any_asker(self, timeout_ms: float | None) -> Ask:
        """Asks any broker; None: with the time that calls have by default."""

    async def describe_quotas(
        self, owner: QuotaOwner = ANYBODY, *, strict: bool = False, timeout_ms: float | None = None
    ) -> dict[QuotaOwner, dict[str, float]]:
        """Quotas of those that match what is given of `owner` (nothing: of all); strict: and are nothing else besides.
        AnsweredError."""
        components = [
            QuotaComponent(kind, QuotaMatch.DEFAULT)
            if isinstance(name, EveryName)
            else QuotaComponent(kind, QuotaMatch.EXACT, name)
            for kind, name in _named(owner)
        ]
        ask = self._any_asker(timeout_ms)
        answer = await ask(DescribeClientQuotasRequest(components, strict), DescribeClientQuotasResponse)
        if not isinstance(answer, DescribeClientQuotasResponse):
            raise BrokerMisbehaved("describing quotas: the answer is another one")
        if answer.error_code:
            raise error_for(answer.error_code, "describing quotas", detail=answer.error_message)
        return {
            _owner(entry.entity): {value.key: value.value for value in entry.values} for entry in answer.entries or ()
        }

    async def alter_quotas(
        self,
        owner: QuotaOwner,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Set quotas of a user, a client id, both together or an address, or, where the value is None, have them no
        longer set; others stay. Brokers take it over at once. AnsweredError: INVALID_REQUEST names key and value."""
        entity = [QuotaEntityData(kind, None if isinstance(name, EveryName) else name) for kind, name in _named(owner)]
        operations = [QuotaOperation(key, value or 0.0, value is None) for key, value in changes.items()]
        request = AlterClientQuotasRequest([AlterQuotaEntry(entity, operations)], validate_only)
        answer = await self._any_asker(timeout_ms)(request, AlterClientQuotasResponse)
        if not isinstance(answer, AlterClientQuotasResponse) or len(answer.entries) != 1:
            raise BrokerMisbehaved("altering quotas: the answer is incomplete")
        [result] = answer.entries
        if result.error_code:
            raise error_for(result.error_code, f"altering the quotas of {owner}", detail=result.error_message)


def _named(owner: QuotaOwner) -> list[tuple[str, str | EveryName]]:
    return [(kind, name) for kind, name in zip((USER, CLIENT_ID, IP), owner, strict=True) if name is not None]


def _owner(parts: list[QuotaEntityData]) -> QuotaOwner:
    names: dict[str, Name] = {
        part.entity_type: DEFAULT_ENTITY if part.entity_name is None else part.entity_name for part in parts
    }
    return QuotaOwner(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _part_text(kind: str, name: Name) -> str:
    return f"{kind} default" if isinstance(name, EveryName) else f"{kind} {name}"
