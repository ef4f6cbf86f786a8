"""Connections that others open leave some descriptors for the process's own files."""

from __future__ import annotations

import errno
import os
import resource

import pytest
import trio

from strandline.runtime.network import Address
from strandline.runtime.network_socket import SPARE_DESCRIPTORS, SocketNetwork


async def test_nobody_is_accepted_for_the_last_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    network = SocketNetwork()
    listener = await network.listen(Address("127.0.0.1", 0))
    client = await trio.open_tcp_stream("127.0.0.1", listener.address.port)
    held = [os.dup(0)]
    while held[-1] < 4 * SPARE_DESCRIPTORS:  # of few a quarter is spared
        held.append(os.dup(0))
    lowest_free = held.pop()
    os.close(lowest_free)
    limit = lowest_free + SPARE_DESCRIPTORS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    with pytest.raises(OSError, match="Too many open files") as refused:
        await listener.accept()
    assert refused.value.errno == errno.EMFILE
    limit += 1
    (await listener.accept()).close()
    await client.aclose()
    listener.close()
    for descriptor in held:
        os.close(descriptor)
