"""Whose quota counts: Kafka's precedence, names in znodes, and what may be written there."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.quotas.entities import (
    DEFAULT,
    InvalidQuota,
    QuotaEntity,
    decide,
    decide_ip,
    decoded,
    encoded,
    entity_at,
    quota_text,
    read_quota,
)

ORDER = (
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=DEFAULT),
)
ENTITIES = st.sampled_from(
    [
        QuotaEntity(user, client_id)
        for user in ("alice", "bob", DEFAULT, None)
        for client_id in ("app", DEFAULT, "other")
    ]
    + [QuotaEntity(user) for user in ("alice", "bob", DEFAULT)]
)


@given(st.dictionaries(ENTITIES, st.integers(1, 9)))
def test_the_first_entity_in_kafkas_order_that_has_the_key_counts(bounds: dict[QuotaEntity, float]) -> None:
    first = next((entity for entity in ORDER if entity in bounds), None)
    found = decide(bounds, "alice", "app")
    assert (found and (found.entity, found.bound)) == (first and (first, bounds[first]))


@given(st.dictionaries(ENTITIES, st.integers(1, 9)), st.sampled_from(["app", "other", "x"]))
def test_all_client_ids_of_a_user_share_what_counts_for_the_user(
    bounds: dict[QuotaEntity, float], client_id: str
) -> None:
    found = decide(bounds, "alice", client_id)
    if found is not None:
        assert found.user == ("" if found.entity.user is None else "alice")
        assert found.client_id == ("" if found.entity.client_id is None else client_id)


def test_an_address_has_its_own_quota_before_that_of_all() -> None:
    bounds = {QuotaEntity(ip="10.0.0.1"): 5.0, QuotaEntity(ip=DEFAULT): 7.0}
    assert [decide_ip(bounds, ip) for ip in ("10.0.0.1", "10.0.0.2")] == [5.0, 7.0]
    assert decide_ip({QuotaEntity(ip="10.0.0.1"): 5.0}, "10.0.0.2") is None


@pytest.mark.parametrize(
    ("name", "in_path"),
    [
        ("alice", "alice"),
        ("CN=a b,O=c/d", "CN%3Da%20b%2CO%3Dc%2Fd"),
        ("<default>", "%3Cdefault%3E"),
        ("a*~_-.", "a%2A%7E_-."),
        ("zoë", "zo%C3%AB"),
    ],
)
def test_names_are_percent_encoded_as_kafkas_sanitizer_does(name: str, in_path: str) -> None:
    assert (encoded(name), decoded(in_path)) == (in_path, name)


@given(st.text())
def test_every_name_comes_back_and_is_one_part_of_a_path(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    assert decoded(encoded(name)) == name
    assert "/" not in encoded(name) and encoded(name) != DEFAULT
    assert unquote(encoded(name)) == name


@given(ENTITIES)
def test_a_path_leads_back_to_its_entity(entity: QuotaEntity) -> None:
    assert entity_at(entity.path) == entity


@pytest.mark.parametrize("path", ["topics/a", "users", "users/", "users/a/b/c", "clients/a/b", "users/a/clients/", ""])
def test_other_paths_are_no_entities(path: str) -> None:
    assert entity_at(path) is None


@pytest.mark.parametrize(
    ("entity", "key", "text", "value"),
    [
        (QuotaEntity("a"), "producer_byte_rate", "1024", 1024),
        (QuotaEntity("a"), "consumer_byte_rate", "1024.0", 1024),
        (QuotaEntity("a"), "request_percentage", "12.5", 12.5),
        (QuotaEntity("a"), "controller_mutation_rate", "0.5", 0.5),
        (QuotaEntity(ip="1.2.3.4"), "connection_creation_rate", "0", 0),
        (QuotaEntity(ip=DEFAULT), "connection_creation_rate", "1", 1),
    ],
)
def test_a_good_value_is_read_and_written_again(entity: QuotaEntity, key: str, text: str, value: float) -> None:
    assert read_quota(entity, key, text) == value
    assert read_quota(entity, key, quota_text(value)) == value


@pytest.mark.parametrize(
    ("entity", "key", "text", "told"),
    [
        (QuotaEntity("a"), "producer_byte_rate", "0", "a whole number, 1 or more (bytes per second)"),
        (QuotaEntity("a"), "producer_byte_rate", "10.5", "a whole number"),
        (QuotaEntity("a"), "producer_byte_rate", "fast", "'fast' of users/a"),
        (QuotaEntity("a"), "consumer_byte_rate", "-1", "a whole number"),
        (QuotaEntity("a"), "request_percentage", "0", "a number above 0"),
        (QuotaEntity("a"), "request_percentage", "nan", "a number above 0"),
        (QuotaEntity("a"), "request_percentage", "inf", "a number above 0"),
        (QuotaEntity("a"), "connection_creation_rate", "5", "there is no quota 'connection_creation_rate' of users/a"),
        (QuotaEntity(ip=DEFAULT), "connection_creation_rate", "0", "a whole number, 1 or more"),
        (QuotaEntity(ip="127.0.0.2"), "connection_creation_rate", "0", "a whole number, 1 or more"),
        (QuotaEntity(ip="%3A%3A1"), "connection_creation_rate", "0", "a whole number, 1 or more"),
        (QuotaEntity(ip="localhost"), "connection_creation_rate", "5", "'localhost' is no IP address"),
        (QuotaEntity(ip="a%2Fb"), "connection_creation_rate", "5", "'a/b' is no IP address"),
        (QuotaEntity(ip="1.2.3.4"), "producer_byte_rate", "5", "allowed is connection_creation_rate"),
        (QuotaEntity(ip="1.2.3.4"), "connection_creation_rate", "2147483648", "a whole number, 0 or more"),
    ],
)
def test_a_wrong_one_is_named_with_what_is_allowed(entity: QuotaEntity, key: str, text: str, told: str) -> None:
    with pytest.raises(InvalidQuota) as caught:
        read_quota(entity, key, text)
    assert told in str(caught.value) and "\n" not in str(caught.value)
