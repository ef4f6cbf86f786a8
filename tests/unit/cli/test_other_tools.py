"""Commands and options of Kafka's tools, kcat and rpk, typed from memory."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-L",), "no such option '-L': here it is strandline topics list, or describe"),
        (("-C", "-t", "t"), "no such option '-C': here it is strandline consume"),
        (("list",), "no such command 'list': did you mean 'strandline topics list'?"),
        (("topic", "list"), "no such command 'topic': did you mean 'topics'?"),
        (("groups", "--list"), "no such option '--list': here it is strandline groups list"),
        (("configs", "--describe", "-t", "t"), "here it is strandline configs describe"),
        (("configs", "--entity-type", "topics"), "here it is -t TOPIC, --broker ID or --all-brokers"),
        (("consume", "--consumer-property", "a=b"), "no such option '--consumer-property': here it is -X KEY=VALUE"),
        (("consume", "--whitelist", "t"), "here it is -r REGEX"),
        (("verify-replicas", "--fetch-size", "1"), "here it is --max-bytes BYTES"),
        (("verify-replicas", "--topics-include", "t"), "here it is --topics REGEX"),
        (("state-changes", "--start-time", "1"), "here it is --since TIME"),
        (("produce", "--broker-list", "a:1"), "here it is -b HOST:PORT"),
        (("offsets", "--topic", "t"), "here it is strandline offsets [TOPIC[:0,1]]…"),
        (("offsets", "t", "--time", "-1"), "here it is --at @TIME"),
        (("consume", "t"), "unexpected extra argument (t): a topic is given as -t TOPIC"),
        (("consume", "--ofset", "1"), "Did you mean one of: '--offset'"),
    ],
)
def test_the_error_says_what_has_its_part_here(shell: Any, args: tuple[str, ...], said: str) -> None:
    ran = shell(*args)
    assert (ran.code, ran.out, ran.err.count("\n"), shell.cluster.bootstrap) == (2, "", 1, "")
    assert said in ran.err
