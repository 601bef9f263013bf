"""Seals on the progress topic."""

from __future__ import annotations

import pytest

from producer_core.errors import ReplayError
from producer_core.pipeline.reprocess import progress_topic


def test_after_one_failed_seal_the_others_are_not_tried(monkeypatch):
    tried = []

    def refused(*arguments, **_):
        tried.append(arguments[3])
        raise ReplayError("no")

    monkeypatch.setattr(progress_topic, "_seal", refused)
    with pytest.raises(ReplayError):
        progress_topic.seal({}, None, "op", range(200), 1, interrupt=lambda: False, report=lambda text: None)

    assert len(tried) < 200
