"""The figure of each broker's load: shares, deviations and their bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.balance.load import load_of

FIGURES = st.lists(st.floats(0.001, 1e12), min_size=1, max_size=6)


def of_four(**indicators: tuple[float, ...]) -> dict[str, dict[int, float | None]]:
    return {name: dict(enumerate(figures, start=1)) for name, figures in indicators.items()}


EVEN = of_four(
    partitions=(26, 24, 25, 25), leaders=(9, 8, 8, 9), cpuUsed=(0.3, 0.28, 0.31, 0.29), nwBytesIn=(51, 50, 49, 52)
)
UNEVEN = of_four(
    partitions=(26, 24, 25, 25), leaders=(4, 8, 8, 14), cpuUsed=(0.1, 0.28, 0.31, 0.6), nwBytesIn=(20, 50, 49, 82)
)


def test_of_four_brokers_and_a_tenth_the_shares_may_deviate_by_a_fortieth() -> None:
    load = load_of(EVEN, {}, 0.1)
    assert load.sigma_bound == pytest.approx(0.025)
    assert load.is_even and load.uneven == [] and load.sigma < 0.025


def test_sigma_is_at_its_bound_where_every_broker_deviates_by_the_threshold() -> None:
    load = load_of(of_four(leaders=(9, 11, 9, 11)), {}, 0.1)
    assert load.sigma == pytest.approx(0.025) and load.is_even
    assert not load_of(of_four(leaders=(89, 111, 90, 110)), {}, 0.1).is_even


def test_an_uneven_cluster_is_beyond_the_bound_and_names_the_farthest_broker_first() -> None:
    load = load_of(UNEVEN, {}, 0.1)
    assert not load.is_even and load.sigma > load.sigma_bound
    assert load.uneven == [4, 1] and load.heaviest_first == [4, 3, 2, 1]


def test_each_step_is_the_texts() -> None:
    load = load_of(of_four(partitions=(10, 20, 30, 40), leaders=(1, 1, 1, 1)), {}, 0.1)
    assert [load.share_of("partitions", each) for each in (1, 2, 3, 4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert load.loads == pytest.approx({1: 0.35, 2: 0.45, 3: 0.55, 4: 0.65})
    assert load.shares == pytest.approx({1: 0.175, 2: 0.225, 3: 0.275, 4: 0.325})
    assert load.deviations == pytest.approx({1: -0.3, 2: -0.1, 3: 0.1, 4: 0.3})
    assert load.sigma == pytest.approx(((0.075**2 + 0.025**2) / 2) ** 0.5)


def test_a_weight_counts_as_often_as_it_says() -> None:
    readings = of_four(partitions=(10, 20, 30, 40), leaders=(1, 1, 1, 1))
    assert load_of(readings, {"partitions": 3.0}, 0.1).loads[4] == pytest.approx(3 * 0.4 + 0.25)
    load = load_of(readings, {"partitions": 0.0}, 0.1)
    assert load.is_even and load.left_out == {"partitions": "it has no weight"}


def test_what_is_0_everywhere_or_not_told_by_somebody_is_left_out_and_said() -> None:
    readings = of_four(leaders=(1, 2, 3, 4), iowait=(0, 0, 0, 0)) | {
        "fd": {1: 10.0, 2: None, 3: 7.0},
        "memUsed": {1: None, 2: None, 3: None, 4: None},
    }
    load = load_of(readings, {}, 0.1)
    assert list(load.readings) == ["leaders"]
    assert load.left_out == {"iowait": "0 everywhere", "fd": "not told by 2, 4", "memUsed": "no broker tells it"}
    with pytest.raises(ValueError, match="no indicator"):
        load_of(of_four(iowait=(0, 0, 0, 0)), {}, 0.1)


def test_what_is_next_to_nothing_on_every_broker_is_left_out_and_said() -> None:
    floors = {"cpuUsed": 0.1, "ioutil": 0.05}
    readings = of_four(leaders=(2, 2, 2, 2), cpuUsed=(0.01, 0.02, 0.04, 0.09), ioutil=(0, 0.003, 0.003, 0.05))
    load = load_of(readings, {}, 0.1, floors)
    assert list(load.readings) == ["leaders", "ioutil"] and load.left_out == {"cpuUsed": "idle everywhere"}
    with pytest.raises(ValueError, match="no indicator"):
        load_of(of_four(cpuUsed=(0.01, 0.02, 0.04, 0.09)), {}, 0.1, floors)


def test_one_broker_alone_is_even() -> None:
    assert load_of({"leaders": {7: 3.0}}, {}, 0.0).is_even


@given(FIGURES, FIGURES)
def test_shares_sum_up_to_one_and_deviations_to_none(leaders: list[float], fd: list[float]) -> None:
    count = min(len(leaders), len(fd))
    load = load_of({"leaders": dict(enumerate(leaders[:count])), "fd": dict(enumerate(fd[:count]))}, {}, 0.1)
    assert sum(load.shares.values()) == pytest.approx(1)
    assert sum(load.deviations.values()) == pytest.approx(0, abs=1e-6)
    assert load.sigma * count <= max(map(abs, load.deviations.values())) + 1e-9
