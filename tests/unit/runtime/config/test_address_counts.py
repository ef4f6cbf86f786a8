"""Numbers for some addresses: how they are written, and what is refused."""

from __future__ import annotations

import pytest

from strandline.runtime.config.address_counts import address_counts, plain_address
from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.values import InvalidConfig

KEY = BROKER_KEYS["max.connections.per.ip.overrides"]


def test_addresses_have_one_spelling_however_they_are_written() -> None:
    entries = KEY.parse("10.0.0.7:50, [fd00::0:7]:20,::1:5 , ::ffff:10.0.0.8:0")
    assert address_counts(entries) == {"10.0.0.7": 50, "fd00::7": 20, "::1": 5, "10.0.0.8": 0}
    assert [plain_address(host) for host in ("fe80::1%eth0", "::ffff:10.0.0.7", "broker-1")] == [
        "fe80::1",
        "10.0.0.7",
        "broker-1",
    ]


@pytest.mark.parametrize(
    "text", ["db.example.com:5", "10.0.0.7", "10.0.0.7:", "10.0.0.7:-1", "10.0.0.7:x", ":5", "1:5"]
)
def test_what_is_no_numeric_address_with_a_count_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidConfig, match="ADDRESS:COUNT for numeric addresses") as caught:
        KEY.parse(text)
    assert text in str(caught.value)


def test_an_address_is_named_once() -> None:
    with pytest.raises(InvalidConfig, match="each once"):
        KEY.parse("10.0.0.7:5,::ffff:10.0.0.7:6")
