"""Changes by an SQL expression: what it may return, and what it cannot reach."""

from __future__ import annotations

import json

import pytest

from producer_core.dlq.revisions.changes import UNCHANGED, EditableRecord
from producer_core.dlq.revisions.refusal import NotEdited
from producer_core.dlq.revisions.sql_change import SqlChange
from producer_core.errors import ConfigError


def record(value, *, has_fields=True):
    return EditableRecord("m-1", "orders", b"k", value, has_fields, "It is a tombstone.", (("h", b"x"),))


def changed(expression, *values, **options):
    return [one.value for one in SqlChange(expression, **options).apply([record(value) for value in values])]


def test_an_expression_gets_value_headers_key_topic_and_id():
    expression = "json_object('a', value->'a', 'h', headers->>'h', 'k', key, 't', topic, 'm', message_id)"

    assert changed(expression, {"a": 1}) == [{"a": 1, "h": "x", "k": "k", "t": "orders", "m": "m-1"}]


def test_null_changes_nothing_and_json_null_is_a_value():
    assert changed("CASE WHEN value->>'a' = '1' THEN value END", {"a": 1}, {"a": 2}) == [{"a": 1}, UNCHANGED]
    assert changed("'null'::JSON", {"a": 1}) == [None]


def test_a_record_without_fields_is_refused_and_the_others_change():
    first, second = SqlChange("'1'::JSON").apply([record(None, has_fields=False), record({"a": 1})])

    assert isinstance(first, NotEdited) and first.kind == "unreadable"
    assert second.value == 1


@pytest.mark.parametrize(
    "expression",
    [
        "(SELECT content FROM read_text('{file}') LIMIT 1)",
        "(SELECT string_agg(file) FROM glob('{folder}/*'))",
        "(SELECT count(*) FROM read_csv('http://127.0.0.1:9/x'))",
        "(SELECT count(*) FROM '{file}')",
        "getenv('HOME')",
        "value) AS JSON) FROM records; COPY (SELECT 1) TO '{folder}/out'; SELECT 1, CAST((value",
        "value) AS JSON) FROM records; INSTALL httpfs; SELECT 1, CAST((value",
        "value) AS JSON) FROM records; ATTACH '{folder}/other.db'; SELECT 1, CAST((value",
        "value) AS JSON) FROM records; SET enable_external_access = true; SELECT 1, CAST((value",
        "(SELECT count(*) FROM dead_letters)",
    ],
)
def test_an_expression_reaches_neither_files_nor_the_network_nor_the_store(tmp_path, expression):
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")

    with pytest.raises(ConfigError) as refused:
        changed(expression.format(file=secret, folder=tmp_path), {"a": 1})
    assert "hunter2" not in str(refused.value)
    assert [one.name for one in tmp_path.iterdir()] == ["secret.txt"]


@pytest.mark.parametrize(
    "expression",
    [
        "value) AS JSON) FROM records UNION ALL SELECT 7, CAST((value",
        "value) AS JSON) FROM records WHERE false UNION ALL SELECT 7, CAST((value",
        "unnest([value, value])",
    ],
)
def test_an_expression_must_return_one_value_for_each_record(expression):
    with pytest.raises(ConfigError, match="one value for each record"):
        changed(expression, {"a": 1})


def test_an_expression_is_cancelled_after_its_time():
    slow = "(SELECT sum(a.range * b.range)::JSON FROM range(1000000) AS a, range(1000000) AS b)"

    with pytest.raises(ConfigError, match="took longer"):
        changed(slow, {"a": 1}, seconds=0.3)


def test_an_expression_with_a_comment_at_its_end_is_complete():
    assert changed("value -- the same", {"a": 1}) == [{"a": 1}]


def test_a_value_that_cannot_be_written_is_refused_for_its_record_only():
    first, second = SqlChange(
        "CASE WHEN value->>'a' = '1' THEN '{\"x\": 1, \"x\": 2}'::JSON ELSE value END"
    ).apply([record({"a": 1}), record({"a": 2})])

    assert isinstance(first, NotEdited) and "a field appears twice" in first.reason
    assert json.dumps(second.value) == '{"a": 2}'
