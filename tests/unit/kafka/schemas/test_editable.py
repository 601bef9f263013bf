"""Edits of values with a schema id: the same schema writes them again, or the one that the edit names."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO

import fastavro
import pytest

from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.sql_change import SqlChange
from producer_core.store import Store
from tests.fixtures.edits import ANN, add, fields, malformed
from tests.fixtures.replays import dead_letter

ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}  # fmt: skip
WITH_CURRENCY = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "currency", "type": "string", "default": "EUR"}],
}
JSON_SCHEMA = {"title": "Order", "type": "object", "properties": {"amount": {"type": "number", "minimum": 0}}}
AT = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)
VALUE = {"id": 1, "amount": Decimal("12.50"), "at": AT, "note": None}


def registry(path, release):
    for schema_id, schema, kind in ((7, ORDER, "AVRO"), (8, WITH_CURRENCY, "AVRO"), (9, JSON_SCHEMA, "JSON")):
        if f"/schemas/ids/{schema_id}" in path:
            return 200, {"schema": json.dumps(schema), "schemaType": kind}
    return 404, {"error_code": 40403, "message": "Schema not found"}


def tagged(schema_id, payload):
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(value, schema=ORDER, schema_id=7):
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return tagged(schema_id, out.getvalue())


def read_avro(data, schema=ORDER):
    return fastavro.schemaless_reader(BytesIO(data[5:]), fastavro.parse_schema(schema), None)


@pytest.fixture
def editor(serve, tmp_path, monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_SCHEMA_REGISTRY_URL", raising=False)
    monkeypatch.delenv("PRODUCER_CORE_CONFIG", raising=False)
    url, _ = serve(registry)

    def start(*values):
        store = Store.open(tmp_path / "store.duckdb")
        add(store, *(dead_letter(number, value=value) for number, value in enumerate(values)))
        return Editor(store, registry={"schema.registry.url": url})

    return start


def preview(editor, change):
    return editor.preview(DeadLetterFilter(), change)


def test_an_edited_avro_value_is_written_with_its_schema(editor):
    orders = editor(avro(VALUE))

    found = preview(orders, fields({"amount": "7.25", "at": "2026-11-28T09:00:00+00:00", "note": "late"}))
    (planned,) = found.planned

    assert planned.value[:5] == avro(VALUE)[:5] and planned.patch.schema_id == 7
    assert read_avro(planned.value) == {
        "id": 1, "amount": Decimal("7.25"), "at": AT.replace(day=28), "note": "late",
    }  # fmt: skip
    assert [str(one) for one in found.samples[0].differences] == [
        'amount: "12.50" → "7.25"',
        'at: "2026-11-27T09:00:00+00:00" → "2026-11-28T09:00:00+00:00"',
        'note: null → "late"',
    ]


def test_the_previous_edit_is_changed_again_and_undone(editor):
    orders = editor(avro(VALUE))
    for change in (fields({"note": "late"}), fields({"id": 5})):
        assert orders.keep(preview(orders, change), **ANN, reason="x").count == 1
    message_id = dead_letter(0).message_id

    assert (
        orders.decoded(message_id).now.view["id"] == 5
        and orders.decoded(message_id).now.view["note"] == "late"
    )
    orders.undo(DeadLetterFilter(ids=(message_id,)), who="ann", origin="cli")
    assert read_avro(orders.decoded(message_id).value) == {**VALUE, "note": "late"}


@pytest.mark.parametrize(
    "change",
    [fields({"id": "seven"}), fields({"amount": "much"}), fields(unset=["id"]), fields({"id": 2**70}), fields({"amount": "1.234"})],
)  # fmt: skip
def test_a_value_that_does_not_fit_its_schema_is_counted_and_stays(editor, change):
    orders = editor(avro(VALUE), avro({**VALUE, "id": 2}))

    found = preview(orders, change)

    assert (found.count, found.misfits) == (0, 2) and "do not fit their schemas" in found.text


def test_one_record_that_does_not_fit_leaves_the_others(editor):
    orders = editor(avro(VALUE), avro({**VALUE, "id": 2}))

    found = preview(
        orders,
        SqlChange(
            "CASE value->>'id' WHEN '1' THEN '{\"id\": \"x\"}' ELSE json_merge_patch(value, '{\"id\": 9}') END"
        ),
    )

    assert (found.count, found.misfits) == (1, 1)
    assert read_avro(found.planned[0].value)["id"] == 9


def test_an_edit_names_another_schema(editor):
    orders = editor(avro(VALUE))

    (planned,) = preview(orders, fields({"currency": "USD"}, schema_id=8)).planned

    assert planned.value[:5] == tagged(8, b"") and planned.patch.schema_id == 8
    assert read_avro(planned.value, WITH_CURRENCY) == {**VALUE, "currency": "USD"}


def test_malformed_input_is_written_with_a_schema_that_the_edit_names(editor):
    orders = editor()
    add(orders._store, malformed(1))

    (planned,) = preview(orders, fields(value={"amount": 3}, schema_id=9)).planned

    assert planned.value == tagged(9, b'{"amount":3}') and planned.makes_replayable


def test_a_json_schema_value_keeps_its_digits_and_is_checked(editor):
    raw = tagged(9, b'{"amount": 1.10, "other": 12345678901234567890.5}')
    orders = editor(raw)

    (planned,) = preview(orders, fields({"new": 1})).planned
    assert planned.value == tagged(9, b'{"amount":1.10,"other":12345678901234567890.5,"new":1}')
    refused = preview(orders, fields({"amount": -1}))
    assert (
        refused.misfits == 1
        and "['amount']" in refused.refusals[0].reason
        and "-1" not in refused.refusals[0].reason
    )


def test_a_value_whose_schema_is_unknown_is_not_edited_but_its_headers_are(editor):
    orders = editor(tagged(70, b"\x02"))

    assert preview(orders, fields({"id": 1})).refused == {"unreadable": 1}
    (planned,) = preview(orders, fields(headers={"fixed": "yes"})).planned
    assert planned.value == tagged(70, b"\x02") and planned.patch.schema_id == 70


def test_a_value_that_would_not_be_written_as_the_same_bytes_is_not_edited(editor):
    orders = editor(avro(VALUE) + b"trailing")

    assert preview(orders, fields({"id": 2})).refused == {"unreadable": 1}
