"""What is shown of messages that have a broker's key: who reads logs shall not be able to pass for a broker."""

from __future__ import annotations

import msgspec


def repr_without_key(struct: msgspec.Struct) -> str:
    """As msgspec writes it, where `broker_key` is not told, only whether there is one."""
    shown = {name: getattr(struct, name) for name in struct.__struct_fields__}
    fields = [f"{name}={'...' if name == 'broker_key' and value else repr(value)}" for name, value in shown.items()]
    return f"{type(struct).__name__}({', '.join(fields)})"
