"""The password of a session at ZooKeeper follows from its id."""

from __future__ import annotations

from support.zookeeper_sessions import password_of


def test_the_password_is_that_which_a_real_server_gave() -> None:
    assert password_of(0x10004D3FFC10000).hex() == "456af1c0ee6e75a62bdb12b1e73b3641"
