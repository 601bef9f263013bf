"""Client settings in a file: JSON, or lines of name=value."""

from __future__ import annotations

import pytest

from producer_core._internal.settings_file import read_settings
from producer_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"acks": "all", "linger.ms": 5}', {"acks": "all", "linger.ms": 5}),
        ('\n  {"acks": "all"}', {"acks": "all"}),
        ("acks=all\nlinger.ms = 5\n", {"acks": "all", "linger.ms": "5"}),
        ("# a comment\n! another\n\nacks=all", {"acks": "all"}),
        ("sasl.password=a=b", {"sasl.password": "a=b"}),
        ("", {}),
    ],
)
def test_settings_are_read_from_json_and_properties_files(tmp_path, text, expected):
    file = tmp_path / "client.properties"
    file.write_text(text)

    assert read_settings(file) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"acks": ', "is not JSON"), ("acks=all\nlinger.ms 5\n", r"Line 2 of .* is not name=value")],
)
def test_an_invalid_file_is_refused_with_the_location_of_the_error(tmp_path, text, message):
    file = tmp_path / "client.properties"
    file.write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_settings(file)


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(tmp_path):
    file = tmp_path / "client.properties"
    file.write_bytes(b"acks=all\nclient.id=caf\xe9\n")

    with pytest.raises(ConfigError, match=r"Line 2 of .*client\.properties is not UTF-8"):
        read_settings(file)


@pytest.mark.parametrize("text", ["client.id=café", '{"client.id": "café"}'])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, text):
    file = tmp_path / "client.properties"
    file.write_text(text, encoding="utf-8-sig")

    assert read_settings(file) == {"client.id": "café"}


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_settings(tmp_path / "client.properties")
    with pytest.raises(ConfigError, match="is a directory"):
        read_settings(tmp_path)
