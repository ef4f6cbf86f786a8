"""Who may log in: DescribeUserScramCredentials (KIP-554), which Kafka's tools ask where they show a user's quotas."""

from __future__ import annotations

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import Int8, Int16, Int32


class ScramCredentialInfo(Message, frozen=True, array_like=True, gc=False):
    mechanism: Int8
    iterations: Int32


class UserScramCredentials(Message, frozen=True, array_like=True, gc=False):
    user: str
    error_code: Int16 = 0
    error_message: str | None = None
    credential_infos: list[ScramCredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None = None
    results: list[UserScramCredentials] = []
    throttle_time_ms: Int32 = 0


class ScramUser(Message, frozen=True, array_like=True, gc=False):
    name: str


class DescribeUserScramCredentialsRequest(Request, frozen=True, array_like=True, gc=False):
    """`users` None: all that have any."""

    users: Named[ScramUser] | None = None
