"""What two scrapes of a broker tell of its load."""

from __future__ import annotations

import pytest

from strandline.client.balance.indicators import (
    INDICATORS,
    NoMetrics,
    Passed,
    Traffic,
    indicators_of,
    parsed,
    traffic_of,
)
from strandline.protocol.types import TopicPartition

BROKER = """# HELP process_cpu_seconds_total Processor time
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total {cpu}
process_resident_memory_bytes 5e+07
process_open_fds 321
strandline_process_disk_read_bytes_total {read}
strandline_process_disk_written_bytes_total 4000
kafka_server_brokertopicmetrics_bytesin_total {topic_in}
kafka_server_brokertopicmetrics_bytesin_total{{topic="a\\"b"}} 7
kafka_server_brokertopicmetrics_replicationbytesin_total 0
kafka_server_brokertopicmetrics_bytesout_total{{topic="t"}} {out}
kafka_server_brokertopicmetrics_bytesout_total{{topic="u"}} {out}
"""
MACHINE = """strandline_node_cpu_seconds_total{{mode="user"}} {cpu}
strandline_node_cpu_seconds_total{{mode="idle"}} {idle}
strandline_node_cpu_seconds_total{{mode="iowait"}} {wait}
strandline_node_network_receive_bytes_total{{device="lo"}} {lo}
strandline_node_network_receive_bytes_total{{device="eth0"}} {cpu}
strandline_node_disk_io_time_seconds_total{{device="sda"}} {wait}
strandline_node_disk_io_time_seconds_total{{device="sdb"}} {idle}
strandline_node_memory_memtotal_bytes 1000
strandline_node_memory_memavailable_bytes 400
strandline_node_filefd_allocated 55
"""


def passed(before: str, after: str, lasted_s: float = 5.0) -> Passed:
    return Passed(parsed(before, 100.0), parsed(after, 100.0 + lasted_s))


def alone(told: Passed) -> dict[str, float | None]:
    """The indicators of the only broker."""
    return {name: of_each[1] for name, of_each in indicators_of({1: told}).items()}


def test_counters_become_rates_and_gauges_are_those_of_the_second_look() -> None:
    found = alone(
        passed(
            BROKER.format(cpu=10.0, read=0, topic_in=1000, out=0),
            BROKER.format(cpu=12.5, read=50, topic_in=6000, out=5),
        )
    )
    assert found == {
        "cpuUsed": 0.5,
        "nwBytesIn": 1000.0,
        "nwBytesOut": 2.0,
        "ioRead": 10.0,
        "ioWrite": 0.0,
        "iowait": None,
        "ioutil": None,
        "memUsed": 5e7,
        "fd": 321.0,
    }
    assert list(found) == [each.name for each in INDICATORS][2:]


def test_what_the_broker_does_not_tell_of_itself_is_its_machines() -> None:
    found = alone(
        passed(
            MACHINE.format(cpu=0, idle=0, wait=0, lo=0),
            MACHINE.format(cpu=10, idle=2.5, wait=7.5, lo=10**9),
            lasted_s=10,
        )
    )
    assert found["cpuUsed"] == 1.0 and found["nwBytesIn"] == 1.0
    assert found["iowait"] == pytest.approx(0.375)
    assert found["ioutil"] == pytest.approx(0.75)  # of the busier disk
    assert (found["memUsed"], found["fd"], found["ioRead"], found["nwBytesOut"]) == (600.0, 55.0, None, None)


def test_a_counter_that_went_down_is_not_known() -> None:
    before, after = (BROKER.format(cpu=cpu, read=0, topic_in=0, out=0) for cpu in (9, 1))
    assert alone(passed(before, after))["cpuUsed"] is None


def machine(cpu: float) -> str:
    return MACHINE.format(cpu=cpu, idle=cpu, wait=0, lo=0)


def test_a_broker_that_was_started_anew_does_not_get_the_figures_of_its_machine() -> None:
    before, after = (BROKER.format(cpu=cpu, read=0, topic_in=cpu, out=0) + machine(cpu * 9) for cpu in (1, 2))
    steady, anew = passed(before, after), passed(after, before + machine(100))
    found = indicators_of({1: steady, 2: anew})
    assert found["cpuUsed"] == {1: 0.2, 2: None}
    assert found["nwBytesIn"] == {1: 0.2, 2: None}
    assert found["memUsed"] == {1: 5e7, 2: 5e7}


def test_where_one_broker_has_no_figure_of_its_own_the_machines_figures_are_compared() -> None:
    of_broker, of_machine = (
        (BROKER.format(cpu=cpu, read=0, topic_in=0, out=0) for cpu in (1, 2)),
        [machine(0), machine(5)],
    )
    both = passed(*(own + its for own, its in zip(of_broker, of_machine, strict=True)))
    exporter = passed(*of_machine)
    found = indicators_of({1: both, 2: exporter})
    assert found["cpuUsed"] == {1: 1.0, 2: 1.0} and found["memUsed"] == {1: 600.0, 2: 600.0}
    assert found["ioRead"] == {1: 0.0, 2: None}, "nobody's machine tells that"


def test_other_families_are_not_even_parsed_and_damaged_lines_are_one_error() -> None:
    look = parsed("this is { no metric\n" + BROKER.format(cpu=1, read=1, topic_in=1, out=1), 0.0)
    assert look.sum("process_open_fds") == 321
    with pytest.raises(NoMetrics, match="Prometheus"):
        parsed("process_open_fds many\n", 0.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no figures"),
        ("<html>\n", "no figures"),
        ('kafka_log_log_logendoffset{topic="t",partition="0"} 5\n', "no figures"),
        ("process_open_fds -5\nprocess_cpu_seconds_total 1e308\n", "no figures"),
        ("process_open_fds 32", "cut off"),
    ],
)
def test_what_has_no_figure_of_a_load_or_is_cut_off_is_not_taken_for_a_brokers(text: str, why: str) -> None:
    with pytest.raises(NoMetrics, match=why):
        parsed(text, 0.0)


def test_openmetrics_may_end_with_its_mark() -> None:
    assert parsed("process_open_fds 5\n# EOF", 0.0).sum("process_open_fds") == 5


@pytest.mark.parametrize("figure", ["-5", "1e308", "+Inf", "NaN"])
def test_what_cannot_be_a_figure_is_left_out_and_nothing_else_stands_for_it(figure: str) -> None:
    text = BROKER.format(cpu=1, read=1, topic_in=figure, out=1).replace("5e+07", figure) + machine(5)
    found = alone(passed(text, text))
    assert (found["memUsed"], found["nwBytesIn"], found["fd"]) == (None, 0.0, 321.0), "of the topic it is known"


def test_a_machine_with_more_memory_left_than_it_has_tells_nothing_of_it() -> None:
    text = machine(5).replace("memtotal_bytes 1000", "memtotal_bytes 100")
    assert alone(passed(text, text))["memUsed"] is None


def test_an_end_of_a_log_that_cannot_be_is_no_growth() -> None:
    led = [TopicPartition("t", 0), TopicPartition("t", 1)]
    before, after = topics(0, 0, 0), topics(10, 0, 400).replace('"1"} 0', '"1"} +Inf')
    assert traffic_of(passed(before, after, lasted_s=10), led) == {
        led[0]: Traffic(40.0, 0.0),
        led[1]: Traffic(0.0, 0.0),
    }


def topics(end_0: int, end_1: int, in_bytes: int, out_bytes: int = 0) -> str:
    return (
        f'kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {in_bytes}\n'
        f'kafka_server_brokertopicmetrics_bytesout_total{{topic="t"}} {out_bytes}\n'
        f'kafka_log_log_logendoffset{{topic="t",partition="0"}} {end_0}\n'
        f'kafka_log_log_logendoffset{{topic="t",partition="1"}} {end_1}\n'
        'kafka_log_log_logendoffset{topic="t",partition="x"} 1\n'
    )


def test_partitions_have_parts_of_their_topics_traffic_as_their_logs_grew() -> None:
    led = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("silent", 0)]
    found = traffic_of(passed(topics(0, 50, 0), topics(30, 60, 4000, 400), lasted_s=10), led)
    assert found == {led[0]: Traffic(300.0, 30.0), led[1]: Traffic(100.0, 10.0), led[2]: Traffic(0.0, 0.0)}


def test_partitions_of_which_none_grew_have_equal_parts() -> None:
    led = [TopicPartition("t", 0), TopicPartition("t", 1)]
    found = traffic_of(passed(topics(5, 5, 0, 0), topics(5, 5, 0, 200), lasted_s=10), led)
    assert found == dict.fromkeys(led, Traffic(0.0, 10.0))
