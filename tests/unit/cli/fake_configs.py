"""The part of the fake admin client that is about configurations."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.client.errors import UnknownTopic
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ConfigResource, DescribeConfigsResourceResult, DescribeConfigsSynonym
from unit.cli.fake_moves import FakeMovingAdmin


class FakeConfigAdmin(FakeMovingAdmin):
    """Tells three keys of each resource, beside those that were set; keeps the last change in its cluster's
    `settings`."""

    def describe_configs(
        self, kind: int, name: str, keys: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> list[DescribeConfigsResourceResult]:
        if kind == ConfigResource.TOPIC and name not in self.cluster.topics:
            raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r}: UNKNOWN_TOPIC_OR_PARTITION")
        found = [
            DescribeConfigsResourceResult("segment.bytes", "99", False, False, 5, [], 0, "How large."),
            DescribeConfigsResourceResult(
                "retention.ms",
                "7",
                False,
                False,
                1,
                [DescribeConfigsSynonym("retention.ms", "7", 1), DescribeConfigsSynonym("a", "7", 4)],
            ),
            DescribeConfigsResourceResult("secret", None, True, True, 1),
            *self.set_configs(kind, name),
        ]
        return [each for each in found if not keys or each.name in keys]

    def alter_configs(
        self, kind: int, name: str, changes: dict[str, str | None], *, validate_only: bool = False
    ) -> None:
        self.cluster.settings["altered"] = (kind, name, changes, validate_only)
        self.set_config(kind, name, changes)
