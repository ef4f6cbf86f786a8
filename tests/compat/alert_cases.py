"""What each shipped alert needs to fire, and that it clears: series as Prometheus' own test runner takes them.

A sample stands for 30 s: `0x20` is 0 for ten minutes, as 21 samples. Each case says which alerts fire at which minute;
no others may, so one fault that sets off the alert of another one is seen, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

INTERVAL_S = 30
HEALTHY = 'up{job="strandline", instance="other:9644"}'
"""Somebody is always scraped, but in the case of nobody."""


class Case(NamedTuple):
    series: Mapping[str, str]
    fires: Mapping[float, frozenset[str]]
    """Minute → alerts."""


def _case(alert: str, figure: str, values: str, at: float, cleared_at: float, *quiet_at: float, **more: str) -> Case:
    """`figure` has these values, and the alert fires at a minute, but not at the others."""
    series = {_series(figure): values, **{_series(name): each for name, each in more.items()}}
    return Case(series, {minute: frozenset() for minute in (*quiet_at, cleared_at)} | {at: frozenset({alert})})


def _series(figure: str) -> str:
    name, _, labels = figure.partition("{")
    return f'{name}{{job="strandline", instance="broker-1:9644"{", " + labels if labels else "}"}'


_CONTROLLER = "kafka_controller_kafkacontroller"
_REPLICAS = "kafka_server_replicamanager"
_DISK = 'strandline_log_directory_free_bytes{logDirectory="/data"}'
_DISK_SIZE = 'strandline_log_directory_size_bytes{logDirectory="/data"}'
_LAG = 'kafka_consumergroup_lag_sum{consumergroup="g", topic="t"}'

_OF_ANOTHER_CLUSTER = 'job="strandline-billing", instance="broker-9:9644"'

CASES: dict[str, Case] = {
    "StrandlineBrokerDown": _case("StrandlineBrokerDown", "up", "1x3 0x7 1x10", 4, 7, 1, 2.5),
    "StrandlineBrokerNotRunning": _case(
        "StrandlineBrokerNotRunning", "kafka_server_kafkaserver_brokerstate", "3x2 1x30 3x10", 13, 19, 1, 8
    ),
    "StrandlineBrokerRestarted": _case(
        "StrandlineBrokerRestarted", "process_start_time_seconds", "100x5 400x50", 4, 20, 2
    ),
    "StrandlineZooKeeperNotConnected": _case(
        "StrandlineZooKeeperNotConnected",
        'kafka_server_sessionexpirelistener_sessionstate{state="CONNECTED"}',
        "1x3 0x5 1x9",
        3.5,
        6,
        1.5,
        2,
        **{'kafka_server_sessionexpirelistener_sessionstate{state="EXPIRED"}': "0x20"},
    ),
    "StrandlineLoopBusy": _case(
        "StrandlineLoopBusy",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "0.9x3 0.2x15 0.4x9",
        8,
        11,
        1,
        6,
    ),
    "StrandlineLoopHeldUp": _case(
        "StrandlineLoopHeldUp", "strandline_event_loop_longest_step_seconds", "0.1x3 1.5x8 0.9x9", 5, 7, 1, 3
    ),
    "StrandlineDescriptorsShort": _case(
        "StrandlineDescriptorsShort", "process_open_fds", "10x3 90x15 80x9", 8, 11, 1, 6, process_max_fds="100x30"
    ),
    "StrandlineNoController": Case(
        {
            _series(f"{_CONTROLLER}_activecontrollercount"): "1x3 0x5 1x9",
            f"{_CONTROLLER}_activecontrollercount{{{_OF_ANOTHER_CLUSTER}}}": "1x30",
        },
        {1: frozenset(), 2.5: frozenset(), 4: frozenset({"StrandlineNoController"}), 6: frozenset()},
    ),
    "StrandlineOfflinePartitions": _case(
        "StrandlineOfflinePartitions", f"{_CONTROLLER}_offlinepartitionscount", "0x3 2x5 0x9", 4, 6, 1.5, 2
    ),
    "StrandlineUnderMinIsr": _case(
        "StrandlineUnderMinIsr", f"{_REPLICAS}_underminisrpartitioncount", "0x3 2x5 0x9", 4, 6, 1.5, 2
    ),
    "StrandlineUnderReplicated": _case(
        "StrandlineUnderReplicated", f"{_REPLICAS}_underreplicatedpartitions", "0x3 2x9 0x9", 5, 7, 1.5, 3
    ),
    "StrandlineUncleanElection": _case(
        "StrandlineUncleanElection",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "0x5 1x40",
        5,
        15,
        2,
    ),
    "StrandlineLeadersUnbalanced": _case(
        "StrandlineLeadersUnbalanced",
        f"{_CONTROLLER}_preferredreplicaimbalancecount",
        "10x3 40x70 10x9",
        33,
        39,
        1,
        20,
        **{f"{_CONTROLLER}_globalpartitioncount": "100x90"},
    ),
    "StrandlineConsumerLagGrows": _case(
        "StrandlineConsumerLagGrows", _LAG, "0x10 0+100x60 6000-100x30 3000x30", 34, 50, 4, 12, 19
    ),
    "StrandlineOfflineLogDirectory": _case(
        "StrandlineOfflineLogDirectory", "kafka_log_logmanager_offlinelogdirectorycount", "0x3 1x5 0x9", 2, 6, 1
    ),
    "StrandlineDiskNearlyFull": _case(
        "StrandlineDiskNearlyFull", _DISK, "90x3 9x5 12x9", 4, 6, 1.5, 2.5, **{_DISK_SIZE: "100x30"}
    ),
    # 500 bytes in half a minute: what is left lasts for eight hours.
    "StrandlineDiskFullInADay": _case(
        "StrandlineDiskFullInADay",
        _DISK,
        "480000x20 480000-500x60 450000x160",
        37,
        115,
        5,
        20,
        **{_DISK_SIZE: "1000000x250"},
    ),
    "StrandlineFiguresMissing": _case(
        "StrandlineFiguresMissing",
        'strandline_metrics_source_failures_total{source="logs"}',
        "0x5 3x40",
        4,
        15,
        2,
    ),
    "StrandlineFiguresLeftOut": _case(
        "StrandlineFiguresLeftOut", 'strandline_metrics_left_out{family="f"}', "0x3 7x30 0x9", 13, 18, 1, 9
    ),
    "StrandlineSeveralControllers": Case(
        {
            _series(f"{_CONTROLLER}_activecontrollercount"): "1x30",
            f'{_CONTROLLER}_activecontrollercount{{job="strandline", instance="other:9644"}}': "0x3 1x5 0x9",
        },
        {1: frozenset(), 2.5: frozenset(), 4: frozenset({"StrandlineSeveralControllers"}), 7: frozenset()},
    ),
    "StrandlineNothingScraped": Case(
        {f"up{{{_OF_ANOTHER_CLUSTER}}}": "1x3 stale _x30 1x9"},
        {1: frozenset(), 6: frozenset(), 12: frozenset({"StrandlineNothingScraped"}), 19: frozenset()},
    ),
    "StrandlineNothingScraped, though nothing ever was": Case(
        {HEALTHY: "_x20 1x30"},
        {1: frozenset(), 4.5: frozenset(), 6: frozenset({"StrandlineNothingScraped"}), 12: frozenset()},
    ),
    "StrandlineBrokerMissing": Case(
        {
            'up{job="strandline", instance="broker-3:9644"}': "1x3 stale _x20 1x30",
            _series("up"): "1x60",
            _series(f"{_CONTROLLER}_activebrokercount"): "3x3 2x20 3x30",
            _series(f"{_REPLICAS}_underreplicatedpartitions"): "0x3 6x21 0x30",
        },
        {
            1: frozenset(),
            6: frozenset({"StrandlineUnderReplicated"}),
            9: frozenset({"StrandlineBrokerMissing", "StrandlineUnderReplicated"}),
            14: frozenset(),
        },
    ),
    "a broker that was taken out for good is not missing": Case(
        {
            'up{job="strandline", instance="broker-3:9644"}': "1x3 stale _x60",
            _series(f"{_CONTROLLER}_activebrokercount"): "3x3 2x60",
            _series(f"{_REPLICAS}_underreplicatedpartitions"): "0x60",
        },
        {1: frozenset(), 10: frozenset(), 20: frozenset()},
    ),
}


def as_promtool_tests(rules: str) -> dict[str, Any]:
    """The whole table as a file for `promtool test rules`. rules: path of the rules."""
    return {
        "rule_files": [rules],
        "evaluation_interval": f"{INTERVAL_S}s",
        "tests": [
            {
                "name": name,
                "interval": f"{INTERVAL_S}s",
                "input_series": [
                    {"series": series, "values": values}
                    for series, values in ({HEALTHY: "1x300"} | dict(case.series)).items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{round(minute * 60)}s",
                        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
                    }
                    for minute, alerts in sorted(case.fires.items())
                ],
            }
            for name, case in CASES.items()
        ],
    }
