"""The table of permissions, and the detection of missing ones."""

from __future__ import annotations

import re

from producer_core.kafka.acls import FEATURES, TABLE, Permission, missing_permissions, required_permissions
from tests.support import ROOT

PAGE = (ROOT / "docs" / "how-to" / "acls.md").read_text()


def test_every_feature_has_a_row_with_a_reason_for_each_permission():
    assert set(TABLE) == set(FEATURES)
    assert all(need.reason for needs in TABLE.values() for need in needs)


def test_exactly_once_needs_read_and_its_transactional_ids():
    assert {
        str(each) for each in required_permissions("exactly_once", ["orders"], transactional_id="shop")
    } == {
        "WRITE on topic orders",
        "DESCRIBE on topic orders",
        "READ on topic orders",
        "WRITE on transactional id shop*",
    }


def test_the_operation_all_covers_every_permission():
    needs = required_permissions("replay", ["orders", "payments"])
    assert missing_permissions(needs, {"orders": frozenset({"ALL"}), "payments": None}) == []
    assert missing_permissions(
        needs, {"orders": frozenset(), "payments": frozenset({"WRITE", "DESCRIBE"})}
    ) == [
        Permission("topic", "orders", "WRITE"),
        Permission("topic", "orders", "DESCRIBE"),
        Permission("topic", "orders", "READ"),
        Permission("topic", "payments", "READ"),
    ]


def test_the_documentation_has_the_same_permission_table():
    table = PAGE.partition("## Permissions")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)`[^|]*\| ([^|]+?) \|", table, re.MULTILINE))
    assert set(rows) == set(FEATURES)
    for feature, text in rows.items():
        documented = {
            (kind.replace(" ", "_"), operation)
            for kind, operations in re.findall(r"(topic|transactional id): ([A-Z_, ]+)", text)
            for operation in operations.split(", ")
        }
        assert documented == {(need.resource, need.operation) for need in TABLE[feature]}, feature
