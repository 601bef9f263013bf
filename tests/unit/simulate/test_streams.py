"""Scenarios, history and the older interface, sent to a broker."""

from __future__ import annotations

from collections import Counter

import pytest

from producer_core.simulate.streams import Stream, Streams


@pytest.mark.slow
def test_streams_keep_their_rates():
    sent = Counter()
    streams = Streams()

    streams.start(
        [
            Stream("fast", lambda: 200.0, lambda: sent.update(["fast"])),
            Stream("slow", lambda: 20.0, lambda: sent.update(["slow"])),
        ],
        duration=0.5,
    )
    streams.wait()

    assert sent["fast"] == pytest.approx(100, abs=3) and sent["slow"] == pytest.approx(10, abs=1)
    assert streams.active == 0
