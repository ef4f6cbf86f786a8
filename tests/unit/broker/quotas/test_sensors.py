"""Who shares a sensor, and that there are never too many."""

from __future__ import annotations

import pytest

from strandline.broker.quotas import sensors as module
from strandline.broker.quotas.entities import DEFAULT, QuotaEntity
from strandline.broker.quotas.holding import let_go
from strandline.broker.quotas.sensors import IDLE_S, OVERFLOW, Charge, Sensor, Sensors, Windows

WINDOWS = Windows(1.0, 11, 1.0)


def sensors_with(bounds: dict[QuotaEntity, float]) -> Sensors:
    sensors = Sensors("Produce", WINDOWS)
    sensors.set_bounds(bounds, 0.0)
    return sensors


def test_who_has_no_quota_has_no_sensor() -> None:
    sensors = sensors_with({QuotaEntity("bob"): 1.0})
    assert sensors.of("alice", "app", 0.0) is None and len(sensors) == 0


def test_client_ids_of_a_user_share_the_users_and_not_that_of_a_pair() -> None:
    sensors = sensors_with({QuotaEntity("alice"): 5.0, QuotaEntity("alice", "app"): 7.0})
    first, second, own = (sensors.of("alice", each, 0.0) for each in ("x", "y", "app"))
    assert first is second and first is not own
    assert first is not None and own is not None and (first.meter.bound, own.meter.bound) == (5.0, 7.0)


def test_a_default_gives_each_a_sensor_of_its_own() -> None:
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 5.0})
    assert sensors.of("alice", "x", 0.0) is sensors.of("bob", "x", 0.0)
    assert sensors.of("alice", "x", 0.0) is not sensors.of("alice", "y", 0.0)


def test_names_that_look_like_the_default_are_names() -> None:
    sensors = sensors_with({QuotaEntity(DEFAULT): 5.0, QuotaEntity("%3Cdefault%3E"): 7.0})
    found = sensors.of("<default>", "x", 0.0)
    assert found is not None and found.meter.bound == 7.0


def owing(sensors: Sensors, count: int, now: float, amount: float = 1000.0) -> None:
    """By so many clients that much has passed, each with another client id."""
    for number in range(count):
        sensor = sensors.of("u", f"client-{number}", now)
        assert sensor is not None
        sensor.take(amount, now)


def test_beyond_so_many_that_owe_all_share_one_and_idle_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SENSORS", 3)
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 5.0})
    owing(sensors, 3, 1.0)
    found = [sensors.of("u", f"late-{number}", 1.0) for number in range(100)]
    assert len(set(map(id, found))) == 1 and len(sensors) == 4
    assert found[0] is not None and found[0].client_id == OVERFLOW
    sensors.of("u", "client-0", IDLE_S)
    assert (late := sensors.of("u", "late", IDLE_S + 1)) is not None and late.client_id == "late"
    assert len(sensors) == 2, "client-0 was used lately, the others are gone"


def test_ten_thousand_made_up_client_ids_take_nobodys_own_sensor_for_longer_than_they_owe() -> None:
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 1000.0})
    owing(sensors, 10_100, 0.0, amount=900.0)
    own = [sensors.of("alice", client_id, 1.0) for client_id in ("one", "other")]
    assert [each and each.client_id for each in own] == ["one", "other"]
    assert len(sensors) == module.MAX_SENSORS + 1, "one is shared by those who came last"


def test_who_shared_one_has_a_sensor_of_its_own_when_there_is_a_place_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SENSORS", 3)
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 1000.0})
    owing(sensors, 3, 0.0)
    shared, own = (sensors.of("alice", "app", now) for now in (0.5, 2.0))
    assert shared and own and (shared.client_id, own.client_id) == (OVERFLOW, "app")
    assert sensors.of("alice", "app", 2.1) is own


@pytest.mark.parametrize("place", ["line", "ahead", "muted", "passing", "unreceived"])
def test_who_waits_for_a_sensor_keeps_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SENSORS", 1)
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 5.0})
    first = sensors.of("u", "first", 0.0)
    assert first is not None
    getattr(first, place)["connection"] = None
    late = sensors.of("u", "late", 9.0)
    assert late is not None and late.client_id == OVERFLOW and sensors.of("u", "first", 9.0) is first
    getattr(first, place).clear()
    late = sensors.of("u", "late", 9.0)
    assert late is not None and late.client_id == "late" and sensors.of("u", "first", 9.0) is not first


def test_a_place_is_looked_for_among_a_few_whatever_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or each request of a new client would take milliseconds."""
    looked_at = list[Sensor]()
    is_as_new = Sensor.is_as_new

    def look(sensor: Sensor, now: float) -> bool:
        looked_at.append(sensor)
        return is_as_new(sensor, now)

    monkeypatch.setattr(Sensor, "is_as_new", look)
    monkeypatch.setattr(module, "MAX_SENSORS", 1000)
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 5.0})
    owing(sensors, 1000, 0.0)
    for number in range(100):
        before = len(looked_at)
        sensors.of("u", f"late-{number}", 0.0)
        assert len(looked_at) - before <= 10
    assert len(set(map(id, looked_at))) == 1000, "each time others"


def test_what_is_given_back_reaches_no_other_quota_than_it_was_taken_from() -> None:
    sensors = sensors_with({QuotaEntity("alice"): 10.0})
    alice = sensors.of("alice", "", 0.0)
    assert alice is not None
    charge, kept = Charge(alice, 100, 0.0), Charge(alice, 20, 0.0)
    charge.give_back()
    assert alice.meter.owed_s(0.0) == pytest.approx(1.0), "20 at 10/s, of which a second was saved up"
    for each in sensors.set_bounds({QuotaEntity("alice"): 1.0}, 1.0):
        let_go(each)
    alice.take(20, 1.0)
    kept.give_back()
    assert alice.meter.owed_s(1.0) == pytest.approx(19.0)


def test_client_ids_that_are_too_long_share_one_and_are_not_remembered() -> None:
    sensors = sensors_with({QuotaEntity(client_id=DEFAULT): 5.0, QuotaEntity("alice"): 7.0})
    found = [sensors.of("bob", f"{number}".zfill(250), 0.0) for number in range(9)]
    assert found[0] is not None and found[0].client_id == OVERFLOW and len(set(map(id, found))) == 1
    assert not sensors._known and sensors.of("bob", "x" * 249, 0.0) is not found[0]
    assert sensors.of("alice", "x" * 250, 0.0) is sensors.of("alice", "y", 0.0), "all of a user's share hers"


def test_what_is_looked_up_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 10)
    sensors = sensors_with({QuotaEntity("bob"): 5.0})
    for number in range(100):
        sensors.of("alice", str(number), 0.0)
    assert len(sensors._known) <= 10


def test_only_sensors_whose_quota_is_another_one_are_named_and_their_debt_is_gone() -> None:
    sensors = sensors_with({QuotaEntity("alice"): 5.0, QuotaEntity("bob"): 5.0, QuotaEntity(client_id="c"): 5.0})
    alice, bob, client = sensors.of("alice", "", 0.0), sensors.of("bob", "", 0.0), sensors.of("x", "c", 0.0)
    assert alice and bob and client
    for each in (alice, bob, client):
        each.take(100, 0.0)
    assert sensors.set_bounds({QuotaEntity("alice"): 6.0, QuotaEntity("bob"): 5.0}, 0.0) == [alice, client]
    assert alice.meter.is_free(0.0) and not bob.meter.is_free(0.0)
    assert sensors.of("alice", "", 0.0) is alice and sensors.of("x", "c", 0.0) is None


def test_a_quota_that_counts_before_takes_over() -> None:
    sensors = sensors_with({QuotaEntity(client_id="c"): 5.0})
    before = sensors.of("alice", "c", 0.0)
    assert sensors.set_bounds({QuotaEntity(client_id="c"): 5.0, QuotaEntity("alice"): 9.0}, 0.0) == []
    after = sensors.of("alice", "c", 0.0)
    assert after is not before and after is not None and after.meter.bound == 9.0
    assert sensors.of("bob", "c", 0.0) is before


def test_a_row_tells_rate_and_how_long_somebody_is_held() -> None:
    sensors = sensors_with({QuotaEntity("alice"): 100.0})
    sensor = sensors.of("alice", "app", 0.0)
    assert sensor is not None
    sensor.take(1000, 0.0)
    [row] = sensors.rows(0.0)
    assert (row.resource, row.user, row.client_id) == ("Produce", "alice", "")
    assert (row.per_second, row.throttle_s) == (pytest.approx(100.0), pytest.approx(9.0))
