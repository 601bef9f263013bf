"""The page about logging: its examples print the fields as JSON keys, and its table names what the code logs."""

from __future__ import annotations

import json
import re

import pytest

from producer_core.producer.event_log import _TEXTS
from tests.support import ROOT
from tests.unit.documents.test_documents import BLOCKS, PAGES, run

NAME = "docs/how-to/logging.md"
PAGE = PAGES[NAME]


def example(word):
    return next(block for name, _, block in BLOCKS if name == NAME and word in block)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["pythonjsonlogger", "structlog"])
def test_the_fields_of_a_dead_letter_are_keys_of_the_json_examples(word):
    ran = run(example(word))
    found = [json.loads(line) for line in ran.stderr.splitlines()]
    (line,) = (line for line in found if "dead letter" in line.get("message", line.get("event")))
    assert (line["topic"], line["code"]) == ("orders", "POLICY_VIOLATION")
    assert "repeated" not in line


@pytest.mark.slow
def test_the_configuration_example_prints_the_start_and_the_close():
    texts = run(example("dictConfig")).stderr
    assert "producer started: brokers=" in texts
    assert "producer closed: acknowledged=1, dead=0, journaled=0, lost=0, producer=" in texts


@pytest.mark.slow
def test_the_librdkafka_example_prints_its_log():
    assert "DEBUG:producer_core._internal.librdkafka:" in run(example("librdkafka")).stderr


def test_the_table_names_events_that_the_code_logs():
    table = PAGE.partition("## Events")[2].partition("\n## ")[0]
    events = [
        text
        for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
        for text in re.findall(r"`(.+?)`", row)
    ]
    sources = "".join(file.read_text() for file in (ROOT / "producer_core").rglob("*.py"))
    logged = {*_TEXTS.values(), *re.findall(r'"([a-z][\w ]+)"', sources)}
    logged |= {kind.replace("_", " ") for kind in logged}
    assert len(events) > 15
    assert [event for event in events if event not in logged and f'f"{event}:' not in sources] == []
