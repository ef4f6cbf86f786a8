"""DescribeUserScramCredentials: nobody has any, since nobody logs in here.

Kafka's tools ask this after the quotas of a user, and go on where the user has no credentials.
"""

from __future__ import annotations

from strandline.broker.network.request import RequestInHand
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserScramCredentials,
)


def describe_scram_credentials(request: RequestInHand[DescribeUserScramCredentialsRequest]) -> None:
    names = dict.fromkeys(user.name for user in request.message.users or ())
    text = "brokers here know no passwords (SASL/SCRAM)"
    results = [UserScramCredentials(name, ErrorCode.RESOURCE_NOT_FOUND, text) for name in names]
    request.respond(DescribeUserScramCredentialsResponse(ErrorCode.NONE, None, results))
