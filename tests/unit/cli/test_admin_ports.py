"""What listens where a broker says that its admin port is may answer anything."""

from __future__ import annotations

import pytest

from strandline.cli.admin_ports import NotTold, status_of
from strandline.runtime import http_client
from strandline.runtime.network import Address


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"[" * 900_000], ids=lambda body: repr(body[:6]))
def test_what_is_no_status_of_a_broker_is_no_admin_port(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(http_client, "get", lambda *_: (200, body))
    with pytest.raises(NotTold, match="h:1 is no broker's admin port: it answered 200; say where"):
        status_of(Address("h", 1), 1, "id", named=False)
