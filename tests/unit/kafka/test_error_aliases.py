"""The names of errors in the protocol, kafka-python and Java."""

from __future__ import annotations

import pytest

from producer_core.kafka.classify import failure_of, known_failures, lookup, other_names
from producer_core.kafka.error_aliases import ALIASES, NO_ERROR, PARENTS
from tests.fixtures import error_names

NUMBER_BY_NAME = {
    name: int(number) if number else None
    for names in (error_names.PROTOCOL, error_names.KAFKA_PYTHON, error_names.JAVA)
    for name, _, number in (word.partition("=") for word in names.split())
}
BASE_NAMES = {name.removesuffix("Error").removesuffix("Exception") for name in (*NO_ERROR, *PARENTS)}
"""Base names of classes such as Kafka, Retriable and Authorization: errors in kafka-python, exceptions in Java."""


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in NUMBER_BY_NAME
        if name.removesuffix("Error").removesuffix("Exception") not in BASE_NAMES
    ),
)
def test_every_name_of_the_protocol_of_kafka_python_and_of_java_is_found(name):
    failure, number = lookup(name), NUMBER_BY_NAME[name]
    assert failure in known_failures()
    if number is not None:
        assert failure.number == number
        assert lookup(str(number)) == failure_of(number) == failure


def test_every_alias_resolves_to_a_row():
    assert set(ALIASES.values()) <= {failure.code for failure in known_failures()}


def test_a_code_has_its_aliases():
    assert "NOT_LEADER_OR_FOLLOWER" in other_names("NOT_LEADER_FOR_PARTITION")
    assert other_names("_NOOP") == []
