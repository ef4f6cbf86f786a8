"""Quotas of users, client ids and addresses: DescribeClientQuotas, AlterClientQuotas (KIP-546)."""

from __future__ import annotations

import enum

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import Int8, Int16, Int32

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Types of entities."""


class QuotaMatch(enum.IntEnum):
    """Which entities a component of a filter is about."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
    """Every one that has this type, its default too."""


class QuotaEntityData(Message, frozen=True, array_like=True, gc=False):
    """A part of an entity: `entity_name` None is the default of its type."""

    entity_type: str
    entity_name: str | None = None


class QuotaComponent(Message, frozen=True, array_like=True, gc=False):
    """`match`: the name, of an exact one."""

    entity_type: str
    match_type: Int8
    match: str | None = None


class QuotaValue(Message, frozen=True, array_like=True, gc=False):
    key: str
    value: float


class QuotaEntry(Message, frozen=True, array_like=True, gc=False):
    entity: list[QuotaEntityData]
    values: list[QuotaValue] = []


class DescribeClientQuotasResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None = None
    entries: list[QuotaEntry] | None = None
    throttle_time_ms: Int32 = 0


class DescribeClientQuotasRequest(Request, frozen=True, array_like=True, gc=False):
    """Entities that match each of the components. strict: those that have other types, too, are left out."""

    components: Named[QuotaComponent] = []
    strict: bool = False


class QuotaOperation(Message, frozen=True, array_like=True, gc=False):
    """remove: have the key no longer set; `value` says nothing then."""

    key: str
    value: float = 0.0
    remove: bool = False


class AlterQuotaEntry(Message, frozen=True, array_like=True, gc=False):
    entity: Named[QuotaEntityData]
    ops: Named[QuotaOperation]


class AlterQuotaResult(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None
    entity: list[QuotaEntityData]


class AlterClientQuotasResponse(Message, frozen=True, array_like=True, gc=False):
    entries: list[AlterQuotaResult]
    throttle_time_ms: Int32 = 0


class AlterClientQuotasRequest(Request, frozen=True, array_like=True, gc=False):
    """Each entry is altered by itself, all of its keys or none."""

    entries: Named[AlterQuotaEntry]
    validate_only: bool = False
