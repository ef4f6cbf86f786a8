"""Names of hosts are found also where no thread can be started any more."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import trio

from strandline.runtime.network import Address
from strandline.runtime.network_socket import SocketNetwork


async def test_a_name_is_resolved_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    network = SocketNetwork()
    listener = await network.listen(Address("127.0.0.1", 0))
    monkeypatch.setattr(trio.socket, "getaddrinfo", refused)
    transport = await network.connect(Address("localhost", listener.address.port))
    transport.close()
    listener.close()
