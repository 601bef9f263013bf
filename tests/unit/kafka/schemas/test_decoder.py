"""The decoder of values for display, without a registry: what it imports, and what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from producer_core.dlq.displayed_body import displayed_key, displayed_value
from producer_core.errors import ConfigError
from producer_core.kafka.schemas.decoder import (
    MAX_SIZE,
    NOT_CONFIGURED,
    NOT_READABLE,
    DecodedValue,
    SchemaDecoder,
)
from producer_core.kafka.schemas.readers import Reader

TAGGED = b"\0\0\0\0\7\x02"
IN_A_PROCESS = """
import sys
{before}
from producer_core.dlq.displayed_body import displayed_value
from producer_core.kafka.schemas.decoder import SchemaDecoder

shown = displayed_value({value!r}, (), SchemaDecoder(lambda: {{"url": "http://127.0.0.1:1"}}), topic="orders")
print(shown.one, [name for name in sys.modules if name.startswith(("confluent_kafka.schema_registry", "fastavro", "httpx"))])
"""


def in_a_process(value, before=""):
    text = IN_A_PROCESS.format(before=before, value=value)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_nothing_of_the_extra_is_imported_for_values_without_a_schema_id():
    assert in_a_process(b'{"password": "x"}') == "{'password': '***'} []\n"


@pytest.mark.slow
def test_without_the_extra_the_id_and_the_way_to_install_it_are_shown():
    found = in_a_process(TAGGED, 'sys.modules["confluent_kafka.schema_registry"] = None')
    assert found.startswith("schema id 7, 6 bytes that are not text. ")
    assert "pip install 'producer-core[schemas]'" in found


def test_a_value_that_is_too_long_is_not_decoded_and_no_settings_are_read():
    def settings():
        raise AssertionError

    found = displayed_value(TAGGED + bytes(MAX_SIZE), (), SchemaDecoder(settings), topic="orders")
    assert found.one.endswith("too long to be shown masked. It is too long to be decoded.")


def test_settings_that_cannot_be_read_are_a_sentence():
    def settings():
        raise ConfigError("The file a does not exist.", fix="Check the path.")

    found = displayed_value(TAGGED, (), SchemaDecoder(settings), topic="orders")
    assert found.note == "The file a does not exist. Check the path."


def test_masking_rules_that_hide_values_and_keys_hide_them_before_anything_is_asked(tmp_path, monkeypatch):
    (tmp_path / "masking.toml").write_text('hide = ["keys", "values"]')
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(tmp_path / "masking.toml"))

    def settings():
        raise AssertionError

    assert displayed_value(TAGGED, (), SchemaDecoder(settings), topic="orders").one == "6 bytes, hidden"
    assert displayed_key(TAGGED, (), SchemaDecoder(settings), topic="orders").one == "***"


def test_unmasked_bytes_are_hexadecimal_with_the_schema_id():
    found = displayed_value(TAGGED, (), SchemaDecoder(lambda: None), topic="orders", reveal=True)
    assert found.one == f"schema id 7, 0x000000000702. {NOT_CONFIGURED}"


def test_a_reader_that_fails_in_an_unexpected_way_is_a_sentence_about_one_value():
    class Cache:
        def known(self, schema_id):
            def read(tagged):
                raise RecursionError("secret=hunter2")

            return Reader("Avro", read)

    decoder = SchemaDecoder(lambda: None)
    decoder._cache = Cache()
    assert decoder.decode(TAGGED, (), "value", "orders") == DecodedValue(7, problem=NOT_READABLE)
