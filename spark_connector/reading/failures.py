"""What the client raises while a read is planned or carried out, as an error of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.client.errors import ClientError, NoBrokerReachable
from strandline.spark_connector.errors import ReadFailed

REMEDY = "check kafka.bootstrap.servers and the brokers; to wait for them longer, raise kafka.default.api.timeout.ms"
BOOTSTRAP_SETTING = "bootstrap_timeout_ms"
"""What the error names where no broker has answered in the time that is given for a first answer."""

REMEDY_BEFORE_ANY_ANSWER = "to wait longer for a first answer, raise kafka.bootstrap.timeout.ms"


@contextmanager
def named_failures() -> Iterator[None]:
    """Raises ReadFailed in place of the client's errors, with all that they say: Spark shows users the text alone, and
    they search for the condition at its beginning."""
    try:
        yield
    except ClientError as error:
        # Where asking again cannot help the text itself says what is wrong, such as a name that no topic can have.
        is_first = isinstance(error, NoBrokerReachable) and BOOTSTRAP_SETTING in str(error)
        remedy = REMEDY_BEFORE_ANY_ANSWER if is_first else REMEDY
        raise ReadFailed(f"{error}; {remedy}" if error.retriable else str(error)) from error
