"""Every row of the tables in docs/reference/values.md holds, and an error names the location inside the value."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import types
import uuid
import zoneinfo

import numpy
import pandas
import pytest

from producer_core.errors import InvalidMessage
from producer_core.messages import checksum, encode_value
from tests.support import ROOT

PAGE = (ROOT / "docs" / "reference" / "values.md").read_text()
NAMES = {
    module.__name__: module
    for module in (
        collections, dataclasses, datetime, decimal, enum, fractions, ipaddress, numpy, pandas, pathlib, types,
        uuid, zoneinfo,
    )
}  # fmt: skip
WRITTEN = re.findall(r"^\| `(.+)` \| `(.+)` \|$", PAGE.partition("These have no JSON form")[0], re.MULTILINE)
REFUSED = re.findall(r"^\| `(.+?)` \|", PAGE.partition("These have no JSON form")[2], re.MULTILINE)


@pytest.mark.parametrize(("python", "json"), WRITTEN)
def test_a_supported_type_is_written_as_documented(python, json):
    value = eval(python, dict(NAMES))

    assert encode_value(value).decode() == json
    assert encode_value({"deep": [value]}).decode() == f'{{"deep":[{json}]}}'


@pytest.mark.slow
@pytest.mark.parametrize("python", REFUSED)
def test_a_value_without_a_json_form_is_rejected_with_its_location(python):
    with pytest.raises(InvalidMessage):
        encode_value(eval(python, dict(NAMES)))
    with pytest.raises(InvalidMessage, match=re.escape("At value['deep'][1]")):
        encode_value({"deep": ["fine", eval(python, dict(NAMES))]})


def test_the_test_tables_are_not_empty():
    assert len(WRITTEN) > 30
    assert len(REFUSED) > 12


class Customer:
    """A user's own class, such as an ORM model."""


@dataclasses.dataclass
class Order:
    lines: list


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (Customer(), "A value of type"),
        ({"items": [{}, {"who": Customer()}]}, "At value['items'][1]['who']: A value of type"),
        (Order([1, (2, Customer())]), "At value.lines[1][1]: A value of type"),
        ({"a": {1, 2, 3 + 4j}}, "At value['a']{…}: A value of type complex"),
        ({"n": numpy.array([1, Customer()], dtype=object)}, "At value['n'][1]: A value of type"),
        ({"a": [1.0, float("nan")]}, "At value['a'][1]: NaN"),
        ({"a": {"b": b"raw"}}, "At value['a']['b']: Bytes"),
        ({"a": {"b": 2**70}}, "At value['a']['b']: The value cannot be written as JSON: Integer"),
        ({"a": {Customer(): 1}}, "At value['a']: A key inside the value"),
    ],
)
def test_an_error_names_the_location_inside_the_value(value, place):
    with pytest.raises(InvalidMessage, match="^" + re.escape(place)):
        encode_value(value)


def test_a_value_that_contains_itself_is_rejected():
    value = {"a": []}
    value["a"].append(value)
    with pytest.raises(InvalidMessage):
        encode_value(value)


def test_a_property_that_raises_does_not_hide_the_error():
    class Broken:
        def tolist(self):
            raise RuntimeError("mine")

    with pytest.raises(InvalidMessage):
        encode_value({"a": Broken()})


def test_the_checksum_rejects_a_value_of_an_unknown_type():
    with pytest.raises(InvalidMessage, match="dedup_key"):
        checksum("orders", None, {"who": Customer()})
