"""A log line's fields are in its text, and in the record for log collectors."""

from __future__ import annotations

import logging

from producer_core._internal.log_fields import with_fields


def test_the_text_of_a_log_line_has_its_fields_and_a_collector_gets_them_too(caplog):
    logging.getLogger("fields").warning(
        **with_fields("store unavailable", topic="orders", error="It is full.")
    )

    (record,) = caplog.records
    assert record.getMessage() == "store unavailable: topic=orders, error=It is full."
    assert (record.topic, record.error) == ("orders", "It is full.")


def test_the_text_leaves_out_empty_fields_and_stays_on_one_line():
    line = with_fields("sent", code="", owner=None, count=0, names=["a", "b", "c"], error="first\nsecond")
    assert line["msg"] == "sent: count=0, names=a, b and c, error=first second"
    assert with_fields("sent", code="")["msg"] == "sent"


def test_a_percent_sign_in_a_field_is_written_as_it_is(caplog):
    logging.getLogger("fields").warning(**with_fields("disk", used="100%s"))
    assert caplog.messages == ["disk: used=100%s"]
