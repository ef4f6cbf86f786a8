"""Whatever prints a message prints no broker's key."""

from __future__ import annotations

import msgspec
import pytest

from strandline.protocol.messages import ApiVersionsRequest, LiveLeader, UpdateMetadataBroker
from strandline.protocol.znodes import BrokerIdZnode

KEY = "0123456789abcdef"


@pytest.mark.parametrize(
    "struct",
    [
        LiveLeader(1, "host", 9092, KEY),
        UpdateMetadataBroker(1, [], None, KEY),
        ApiVersionsRequest(client_id="host", broker_key=KEY),
        BrokerIdZnode(endpoints=(), rack="host", broker_key=KEY),
    ],
)
def test_a_broker_key_is_in_no_repr(struct: msgspec.Struct) -> None:
    for shown in (repr(struct), str(struct), f"{[struct]}"):
        assert KEY not in shown and "broker_key=..." in shown
