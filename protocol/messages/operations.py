"""What somebody may do with something, as a bit for each operation: 1 << its number in Kafka's AclOperation.

Nothing here asks who somebody is, so everybody may do all that can be done to a thing, and is told so on request, as by
a Kafka without an authorizer (`AclEntry.supportedOperations`).
"""

from __future__ import annotations

OPERATIONS_NOT_ASKED_FOR = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_CLUSTER_OPERATIONS = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
ALL_TOPIC_OPERATIONS = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
ALL_GROUP_OPERATIONS = _bits(_READ, _DELETE, _DESCRIBE)
