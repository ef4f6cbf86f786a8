"""Who asks: what a request's handler knows of its other side."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.runtime.network import Address

MAX_CLIENT_ID_CHARACTERS = 2**15 // 4 - 1
"""So much of a client's id is kept: as UTF-8 it fits a string of Kafka's, in which others are told of it (groups)."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """For authorisation, quotas, logs, and the address to advertise. Requests of one connection share it until one
    comes that differs, by its client id for instance.

    is_inter_broker: it has shown by a key that it is a broker (`membership/broker_key`); by which listener it came
        tells nothing, since clients may reach that of the brokers, too."""

    listener_name: str
    is_inter_broker: bool
    peer: Address
    principal: str = "ANONYMOUS"
    client_id: str = ""
    dialect: str = ""
