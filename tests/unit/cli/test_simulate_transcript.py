"""What a person reads of a simulated run, and what is drawn of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

from strandline.cli.simulate_page import simulate_page
from strandline.cli.simulate_transcript import transcript
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.pipelines.pictures import RIGHT, WIDTH
from strandline.testkit.simulation.driver import Report
from strandline.testkit.simulation.history import History, Outcome, Stream, Write
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.script import Fault, Struck

STREAM = Stream(TopicPartition("all", 0), 1)


def said(at_s: float, broker_id: int, event: str, **fields: Any) -> str:
    return f"{at_s:9.4f} broker-{broker_id} " + json.dumps({**fields, "event": event, "level": "info"})


def state(leader: int, epoch: int, isr: list[int]) -> dict[str, Any]:
    known = {"topic": "all", "topic_id": "x", "partition": 0, "replicas": [1, 2, 3]}
    return {**known, "leader": leader, "leader_epoch": epoch, "zk_version": epoch, "isr": isr}


def write(at_s: float, outcome: Outcome, why: str = "") -> Write:
    return Write("producer-all", STREAM, b"v", -1, at_s - 1, at_s, outcome, why=why)


LINES = [
    said(0.5, 1, "broker registered", broker_epoch=7),
    said(0.6, 1, "elected controller", controller_epoch=1),
    said(1.0, 1, "partition state changed", **state(2, 0, [1, 2, 3]), controller_epoch=1),
    said(1.1, 2, "became leader", **state(2, 0, [1, 2, 3])),
    said(1.1, 3, "became follower", **state(2, 0, [1, 2, 3])),
    said(2.6, 1, "contact lost", leader=2),
    said(2.7, 1, "fetcher disconnected", leader=2),
    said(3.0, 1, "partition state changed", **state(1, 1, [1, 3]), controller_epoch=1, why="leader failed"),
    said(3.1, 1, "became leader", **state(1, 1, [1, 3])),
    said(4.2, 3, "broker alive", leading=1),
    said(4.5, 3, "truncated", partition="all-0", to_offset=4),
    said(4.6, 3, "something new"),
    "   4.7000 broker-2 ended: no space is left",
]
TOLD = """\
    0.500 broker-1     broker 1 started
    0.600 broker-1     controller elected, controller epoch 1
    1.000 broker-1     all-0: the controller wrote: leader 2, epoch 0, version 0, ISR 1,2,3 of 1,2,3, controller epoch 1
    1.100 broker-2     all-0: it leads: leader 2, epoch 0, version 0, ISR 1,2,3 of 1,2,3
    2.500              STRUCK kill 2 for 2
    2.800              STRUCK zookeeper down
    3.000 broker-1     all-0: the controller wrote: leader 1, epoch 1, version 1, ISR 1,3 of 1,2,3, controller \
epoch 1, leader failed
    3.100 broker-1     all-0: it leads: leader 1, epoch 1, version 1, ISR 1,3 of 1,2,3
    3.500 producer-all all-0: write unknown: no answer (×2 until 4.000)
    4.000              undone kill 2 for 2
    4.500 broker-3     truncated: partition=all-0, to_offset=4
    4.600 broker-3     something new
    4.700 broker-2     ended: no space is left
    9.000 producer-all all-0: write unknown: no answer
""".splitlines()
STRUCK = [Struck(Fault(1.5, "kill", "2", 2.0), 2.5, 4.0), Struck(Fault(1.8, "zookeeper down"), 2.8)]
HISTORY = History(
    [write(at_s, Outcome.UNKNOWN, "no answer") for at_s in (3.5, 4.0, float("inf"))] + [write(2.0, Outcome.OK)]
)
REPORT = Report(
    *(draw_options(1, {}, ()), (), ["lost-write: all-0: b'<v>'"], "digest", 9.0),
    *(LINES, Counter(), STRUCK, HISTORY),
)


def test_the_transcript_tells_what_happened_in_the_order_of_the_virtual_time() -> None:
    assert transcript(REPORT) == TOLD


def test_of_a_run_in_which_nobody_said_anything_nothing_is_told() -> None:
    silent = replace(REPORT, lines=[], struck=[], history=History())
    assert transcript(silent) == []
    assert "Findings" in simulate_page(silent) and "Who led" not in simulate_page(silent)


def test_the_page_has_the_faults_on_the_axis_of_leaders_and_isrs() -> None:
    shown = simulate_page(REPORT)
    for text in ("Simulation of seed 1", "lost-write: all-0: b&#x27;&lt;v&gt;&#x27;", "Who led", "In-sync replicas"):
        assert text in shown
    faults = shown.partition("<h2>Faults</h2>")[2].partition("</svg>")[0]
    assert "<title>1.500 kill 2 for 2</title>" in faults and "<title>1.800 zookeeper down</title>" in faults
    assert "broker 2" in faults and "ZooKeeper" in faults
    leaders = shown.partition("<h2>Who led</h2>")[2].partition("</svg>")[0]
    times = re.compile(r">(00:00:0\d)<")
    assert times.findall(faults) == times.findall(leaders) == [f"00:00:0{second}" for second in (0, 1, 2, 3, 4)]
    right = [float(x) + float(width) for x, width in re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', faults)]
    assert 'width="inf"' not in faults
    assert max(right) <= WIDTH - RIGHT + 0.01, "what was never undone ends with the run"
