"""Test exports and reveals: masking, limits and audit."""

from __future__ import annotations

import csv
import io
import json

import pytest

from producer_core.dashboard.actions import exports
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import TransferError
from tests.fixtures.dead_letter_pages import NOW, dead_letter


def test_an_export_is_masked_audited_and_free_of_formulas(store):
    DeadLetters(store).add(
        [dead_letter(1, key=b"=cmd|' /C calc'!A0", value=b'{"password": "hunter2"}'), dead_letter(2)]
    )
    file = exports.export(store, DeadLetterFilter(ids=("m-1",)), "csv", who="ada", now=NOW)
    rows = list(csv.DictReader(io.StringIO(file.content.decode("utf-8-sig"))))
    assert [row["message_id"] for row in rows] == ["m-1"]
    assert rows[0]["key"].startswith("'=")
    assert b"hunter2" not in file.content
    lines = exports.export(store, DeadLetterFilter(), "jsonl", who="ada", now=NOW).content.splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["m-1", "m-2"]
    audit = store.rows("audit_latest", limit=10)
    assert [(row["action"], row["who"], row["count"]) for row in audit] == [
        ("export", "ada", 2),
        ("export", "ada", 1),
    ]


def test_an_export_beyond_its_limit_is_rejected(store, path, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    monkeypatch.setattr(exports, "MAX_DEAD_LETTERS", 1)
    with pytest.raises(TransferError, match="has 2 dead letters; one download holds at most 1"):
        exports.export(store, DeadLetterFilter(), "csv", who="ada", now=NOW)
    monkeypatch.setattr(exports, "MAX_DEAD_LETTERS", 10)
    monkeypatch.setattr(exports, "MAX_BYTES", 10)
    with pytest.raises(TransferError, match="MiB; one download holds at most"):
        exports.export(store, DeadLetterFilter(), "jsonl", who="ada", now=NOW)
    command = exports.command(path, DeadLetterFilter(topic="a b"))
    assert command.startswith("producer-core dlq export dead-letters.parquet '--topic=a b' --store=")


def test_a_reveal_is_audited(store):
    DeadLetters(store).add([dead_letter(1)])
    assert exports.reveal(store, "m-1").ok
    assert store.rows("audit_latest", limit=1)[0]["action"] == "reveal"
    assert [event.what for event in dead_letter_queries.dead_letter_timeline(store, "m-1")][-1] == "revealed"
