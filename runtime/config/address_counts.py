"""A number for each of some addresses: `10.0.0.7:50,[fd00::7]:20`. Pure.

Addresses are numeric: who connects is known by its number, and a name may lead to another one tomorrow. The last colon
ends the address, as in Kafka, so brackets are not needed. An IPv4 address within an IPv6 one is that IPv4 address.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from strandline.runtime.config.keys import Allowed

_ENTRY = re.compile(r"\[?([0-9A-Fa-f:.]+)\]?:([0-9]{1,9})", re.ASCII)


def address_counts(entries: Sequence[str]) -> dict[str, int]:
    """Address, as `plain_address` has it, → its number. ValueError for what is none."""
    counts: dict[str, int] = {}
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(entry)
        address = plain_address(str(ipaddress.ip_address(match[1])))
        if address in counts:
            raise ValueError(entry)
        counts[address] = int(match[2])
    return counts


def plain_address(host: str) -> str:
    """In its one spelling; what is no address stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_address(host: str) -> bool:
    """And no name, which would have to be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_allowed(entries: Sequence[str]) -> bool:
    try:
        address_counts(entries)
    except ValueError:
        return False
    return True


ADDRESS_COUNTS = Allowed("ADDRESS:COUNT for numeric addresses, each once", _is_allowed)
