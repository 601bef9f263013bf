"""The recorder's access to the store: its error, and one notice for each start and end of an outage."""

from __future__ import annotations

import pytest

from producer_core.errors import StoreCorrupt, StoreFull, StoreLocked
from producer_core.metrics.store_access import StoreAccess


def test_an_outage_emits_one_notice_when_it_begins_and_one_when_it_ends():
    notices, destination, errors = [], object(), [StoreLocked("held"), StoreFull("no space"), None, None]

    def open_store():
        if error := errors.pop(0):
            raise error
        return destination

    access, used = StoreAccess(open_store, notice=notices.append, clock=lambda: 7.0), []
    assert not access.use(used.append) and access.trouble == "held"
    assert not access.use(used.append) and access.trouble == "no space"
    assert access.use(used.append) and access.trouble is None
    assert access.use(used.append)

    assert used == [destination, destination]
    assert errors == [None]  # an open store is not opened again
    assert [(notice.kind, notice.severity, notice.at) for notice in notices] == [
        ("store_unavailable", "critical", 7.0),
        ("store_available", "info", 7.0),
    ]


def test_an_error_of_another_kind_is_raised():
    access = StoreAccess(object, notice=[].append, clock=lambda: 0.0)
    with pytest.raises(ZeroDivisionError):
        access.use(lambda destination: 1 / 0)
    assert access.trouble is None


def failing_until(fixed):
    def work(destination):
        if not fixed:
            raise StoreCorrupt("The store s.duckdb is damaged.", fix="Move it aside.")

    return work


def test_a_damaged_store_is_logged_once_while_some_parts_of_the_work_succeed_and_others_fail(caplog):
    notices, fixed = [], []
    access = StoreAccess(object, notice=notices.append, clock=lambda: 7.0)
    for _ in range(20):
        assert access.use(lambda destination: None, part="statistics")
        assert not access.use(failing_until(fixed), part="dead letters")
        assert access.trouble

    assert caplog.messages == ["store unavailable: error=The store s.duckdb is damaged. Move it aside."]
    assert len(notices) == 1

    fixed.append(True)
    assert access.use(failing_until(fixed), part="dead letters") and access.trouble is None
    assert caplog.messages[1:] == ["store available again"]


def test_the_trouble_of_one_part_is_none_of_another():
    access = StoreAccess(object, notice=[].append, clock=lambda: 0.0)
    access.use(failing_until([]), part="statistics")
    assert "damaged" in access.trouble_of("statistics")
    assert access.trouble_of("dead letters") is None
