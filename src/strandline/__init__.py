"""Strandline, a replicated commit log: the public names.

They are imported when first used, so that `import strandline` costs nothing and the broker never loads the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.client import Admin, Consumer, Producer
    from strandline.protocol.types import TopicPartition

__version__ = "0.1.0"
__all__ = ["Admin", "Consumer", "Producer", "TopicPartition", "__version__"]

_HOMES = {
    "Admin": "strandline.client",
    "Consumer": "strandline.client",
    "Producer": "strandline.client",
    "TopicPartition": "strandline.protocol.types",
}


def __getattr__(name: str) -> object:
    """PEP 562: resolve a public name on first use and keep it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'strandline' has no attribute {name!r}; public names: {', '.join(__all__)}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
