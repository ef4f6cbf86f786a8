"""Kafka's own wire format: frames and bodies as Kafka clients write and read them."""

import sys


def _load_kio_alone() -> None:
    """kio describes its types to hypothesis wherever that is installed, which takes a broker more than a second and
    13 MB: in a program that does not use hypothesis itself, kio does not find it."""
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]


_load_kio_alone()
