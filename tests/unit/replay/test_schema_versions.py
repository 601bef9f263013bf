"""The comparison of schemas in a dry run ends with the dry run, also if the registry responds slowly."""

from __future__ import annotations

import threading

from producer_core.errors import SchemaUnavailable
from producer_core.replay.schema_versions import _within
from producer_core.replay.selection_counts import SchemaIdCount

COUNTS = [SchemaIdCount("orders", number, 1) for number in range(1, 51)]


class SlowRegistry:
    """Responds when it is released."""

    def __init__(self):
        self.release = threading.Event()
        self.asked = []
        self.closed = threading.Event()

    def evolution(self, subject, schema_id):
        self.asked.append(schema_id)
        self.release.wait(30)

    def close(self):
        self.closed.set()


def test_no_further_request_is_sent_after_the_dry_run_stopped_waiting():
    registry = SlowRegistry()
    found = _within(registry, COUNTS, 0.05, stored=False)
    assert "does not respond" in found.problem
    assert registry.closed.is_set()
    threads = [one for one in threading.enumerate() if one.name == "schema-versions"]
    registry.release.set()
    for thread in threads:
        thread.join(30)
    assert registry.asked == [1]


def test_the_text_of_a_response_is_shown_only_for_the_operators_registry_and_masked():
    class Registry(SlowRegistry):
        def evolution(self, subject, schema_id):
            raise SchemaUnavailable("The page says password=hunter2.", fix="")

    assert "The page says password=***" in _within(Registry(), COUNTS, 30, stored=False).problem
    assert "The page" not in _within(Registry(), COUNTS, 30, stored=True).problem
