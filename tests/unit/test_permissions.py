"""The table of permissions, and what is missing of it."""

from __future__ import annotations

import re
from pathlib import Path

from producer_core.kafka.acls import FEATURES, TABLE, Permission, lacking, needed

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_every_feature_has_its_row_with_a_reason_for_each_permission():
    assert set(TABLE) == set(FEATURES)
    assert all(need.reason for needs in TABLE.values() for need in needs)


def test_exactly_once_needs_to_read_back_and_its_transactional_ids():
    assert {str(each) for each in needed("exactly_once", ["orders"], transactional_id="shop")} == {
        "WRITE on topic orders",
        "DESCRIBE on topic orders",
        "READ on topic orders",
        "WRITE on transactional id shop*",
    }


def test_what_is_allowed_in_one_word_is_not_missing():
    needs = needed("replay", ["orders", "payments"])
    assert lacking(needs, {"orders": frozenset({"ALL"}), "payments": None}) == []
    assert lacking(needs, {"orders": frozenset(), "payments": frozenset({"WRITE", "DESCRIBE"})}) == [
        Permission("topic", "orders", "WRITE"),
        Permission("topic", "orders", "DESCRIBE"),
        Permission("topic", "orders", "READ"),
        Permission("topic", "payments", "READ"),
    ]


def test_the_readme_has_the_same_table():
    table = README.partition("## Permissions")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| ([^|]+?) \|", table, re.MULTILINE))
    assert set(rows) == set(FEATURES)
    for feature, text in rows.items():
        told = {
            (kind.replace(" ", "_"), operation)
            for kind, operations in re.findall(r"(topic|transactional id): ([A-Z_, ]+)", text)
            for operation in operations.split(", ")
        }
        assert told == {(need.resource, need.operation) for need in TABLE[feature]}, feature
