"""The values of an edit, while the schema registry responds with something else."""

from __future__ import annotations

from producer_core.dlq.revisions.value_codec import ValueCodec


def test_a_registry_that_responds_with_a_login_page_is_the_reason_why_the_fields_cannot_be_read(serve):
    url, _ = serve(lambda path, release: (200, b"<html>Please log in</html>"))
    found = ValueCodec(lambda: {"url": url}).read(b"\0\0\0\0\7\2", (), "orders")
    assert not found.has_fields
    assert found.problem.startswith("The fields of the value cannot be read: The schema registry's response")
