"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: what is configured for a topic or a broker, and by whom.

A resource is a topic, a broker (by its id; it is asked itself), or what counts for all brokers (type BROKER, name "").
"""

from __future__ import annotations

import enum

from strandline.protocol.messages.base import Message, Named, Request
from strandline.protocol.types import Int8, Int16, Int32


class ConfigResource(enum.IntEnum):
    """`resource_type`. The levels of a broker's loggers are not served."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigSource(enum.IntEnum):
    """Where a value stands; the more particular one has the lower number and counts."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(enum.IntEnum):
    """Of a value; UNKNOWN for keys that this version does not know."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(enum.IntEnum):
    """What becomes of a key; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# --- DescribeConfigs -------------------------------------------------------------------------------------------


class DescribeConfigsSynonym(Message, frozen=True, array_like=True, gc=False):
    """One place where the value of a key stands, or that of another key that stands in for it."""

    name: str
    value: str | None
    source: Int8


class DescribeConfigsResourceResult(Message, frozen=True, array_like=True, gc=False):
    """One key. `value`: None where there is none, and of what is sensitive. `synonyms`: first what counts."""

    name: str
    value: str | None
    read_only: bool
    is_sensitive: bool
    config_source: Int8 = -1
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Int8 = 0
    documentation: str | None = None


class DescribeConfigsResult(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message, frozen=True, array_like=True, gc=False):
    results: list[DescribeConfigsResult]
    throttle_time_ms: Int32 = 0


class DescribeConfigsResource(Message, frozen=True, array_like=True, gc=False):
    """`configuration_keys`: None or nothing for all."""

    resource_type: Int8
    resource_name: str
    configuration_keys: Named[str] | None = None


class DescribeConfigsRequest(Request, frozen=True, array_like=True, gc=False):
    """Any broker answers about topics and about what counts for all brokers."""

    resources: Named[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = False


# --- AlterConfigs, IncrementalAlterConfigs ---------------------------------------------------------------------


class AlterConfigsResourceResponse(Message, frozen=True, array_like=True, gc=False):
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


class AlterConfigsResponse(Message, frozen=True, array_like=True, gc=False):
    responses: list[AlterConfigsResourceResponse]
    throttle_time_ms: Int32 = 0


class IncrementalAlterConfigsResponse(Message, frozen=True, array_like=True, gc=False):
    responses: list[AlterConfigsResourceResponse]
    throttle_time_ms: Int32 = 0


class AlterableConfig(Message, frozen=True, array_like=True, gc=False):
    name: str
    value: str | None


class AlterConfigsResource(Message, frozen=True, array_like=True, gc=False):
    resource_type: Int8
    resource_name: str
    configs: Named[AlterableConfig]


class AlterConfigsRequest(Request, frozen=True, array_like=True, gc=False):
    """Replaces what is set for a resource: keys that are not named have their defaults again."""

    resources: Named[AlterConfigsResource]
    validate_only: bool = False


class IncrementalAlterableConfig(Message, frozen=True, array_like=True, gc=False):
    """`value`: None to DELETE."""

    name: str
    config_operation: Int8
    value: str | None = None


class IncrementalAlterConfigsResource(Message, frozen=True, array_like=True, gc=False):
    resource_type: Int8
    resource_name: str
    configs: Named[IncrementalAlterableConfig]


class IncrementalAlterConfigsRequest(Request, frozen=True, array_like=True, gc=False):
    """Changes the keys that it names, and no other (KIP-339)."""

    resources: Named[IncrementalAlterConfigsResource]
    validate_only: bool = False
