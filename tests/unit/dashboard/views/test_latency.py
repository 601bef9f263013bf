"""Test the latency page."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard import wording
from producer_core.store import Batch
from producer_core.store.compression_samples import CompressionRow, save_compression
from tests.fixtures.latency import client, fill
from tests.fixtures.pages import html_of, opened, tiles_of

NOW = 0.0


@pytest.mark.slow
def test_the_page_of_an_empty_store_has_no_numbers(path, store, monkeypatch):
    page = opened("latency", path, monkeypatch)
    assert not page.exception
    assert "no diagnosis is available" in html_of(page)
    assert [value for _, value in tiles_of(page)] == ["–"] * 8


@pytest.mark.slow
def test_the_page_of_an_older_producer_has_percentiles_but_no_diagnosis(path, store, monkeypatch):
    fill(store, client_rows=False)
    page = opened("latency", path, monkeypatch)
    assert not page.exception
    assert "no diagnosis is available" in html_of(page)
    assert tiles_of(page)[0] == ("p50", "5.0 ms")


@pytest.mark.slow
def test_the_page_starts_with_the_diagnosis_its_evidence_and_setting(path, store, monkeypatch):
    fill(store, change={"fill_highest": 0.99})
    page = opened("latency", path, monkeypatch)
    assert not page.exception
    text = html_of(page)
    assert text.index("The producer&#x27;s queue is full.") < text.index("By broker")
    assert "It was up to 99% full" in text and "<code>buffer_memory" in text
    assert [label for label, _ in tiles_of(page)[:4]] == ["p50", "p95", "p99", "p99.9"]
    assert "broker 2 (kafka2:9092)" in text


@pytest.mark.slow
def test_the_table_of_brokers_shows_the_connection_now(path, store, monkeypatch):
    fill(store)
    text = html_of(opened("latency", path, monkeypatch))
    assert "<th scope='col' class='pc-n'>Now</th>" in text and "<td class='pc-n'>connected</td>" in text


@pytest.mark.slow
def test_a_past_finding_is_marked_as_earlier(path, store, monkeypatch):
    fill(store, seconds=30)
    start = int(NOW) // 10 * 10 - 200
    ats = range(start, start + 10)
    store.append(Batch("q", 0, client_statistics=tuple(client(at, cut_off=1) for at in ats)))
    text = html_of(opened("latency", path, monkeypatch, range="5 min"))
    assert "Earlier: No broker could be reached." in text
    assert "no connection to any broker, so nothing was sent. Ended " in text
    assert (
        f"from {wording.stamp(start, None, time.time()).text} to {wording.stamp(start + 10, None, time.time()).text} UTC, for 10 s."
        in text
    )


@pytest.mark.slow
def test_a_topic_in_the_address_filters_the_page(path, store, monkeypatch):
    fill(store)
    page = opened("latency", path, monkeypatch, topic="orders", range="5 min")
    assert not page.exception
    assert "cover all topics" in html_of(page)


@pytest.mark.slow
def test_names_are_never_markup(path, store, monkeypatch):
    hostile = "<img src=x onerror=alert(1)>"
    fill(store, topic=hostile, rtt_sum=40.0, address=hostile)
    text = html_of(opened("latency", path, monkeypatch))
    assert "onerror" in text and hostile not in text


def sampled(topic, zstd_bytes):
    return CompressionRow(
        "p", "c", topic, NOW - 5, "lz4", 1000.0, 20, 500, 1 << 20, 1 << 19, zstd_bytes, 0.001, 0.004
    )


@pytest.mark.slow
def test_each_topic_shows_what_the_codecs_leave_and_a_suggestion(path, store, monkeypatch):
    fill(store)
    save_compression(store, [sampled("orders", 1 << 18), sampled("refunds", 1 << 19)])
    text = html_of(opened("latency", path, monkeypatch))
    table = text[text.index("aria-label='Compression by topic'") :]
    assert "50.0%" in table and "25.0%" in table and "1.0 ms/MiB" in table
    assert "compression_type=&#x27;zstd&#x27; would send 50% fewer bytes." in table
    assert "Keep lz4." in table
    filtered = html_of(opened("latency", path, monkeypatch, topic="refunds"))
    assert "Keep lz4." in filtered and "would send" not in filtered


@pytest.mark.slow
def test_a_store_without_samples_has_no_table_of_codecs(path, store, monkeypatch):
    fill(store)
    assert "Compression by topic" not in html_of(opened("latency", path, monkeypatch))
