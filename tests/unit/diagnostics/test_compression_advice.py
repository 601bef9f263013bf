"""What the doctor and the latency page say about the codecs of a topic."""

from __future__ import annotations

import pytest

from producer_core.diagnostics.compression_advice import compression_advice
from producer_core.diagnostics.doctor.compression_checks import check_compression
from producer_core.store.compression_samples import CompressionRow, save_compression


def sampled(topic, *, codec="lz4", lz4=0.5, zstd=0.25, per_second=10.0, producer="p", samples=10):
    return CompressionRow(
        producer, "c", topic, 100.0, codec, per_second, samples, 1000, 20_000, int(20_000 * lz4), int(20_000 * zstd), 2e-5, 5e-5
    )  # fmt: skip


@pytest.mark.parametrize(
    ("row", "suggestion"),
    [
        (sampled("t"), "compression_type='zstd' would send 50% fewer bytes."),
        (sampled("t", codec="zstd"), "Keep zstd."),
        (sampled("t", zstd=0.45), "Keep lz4."),
        (sampled("t", codec="none", zstd=0.45), "compression_type='lz4' would send 50% fewer bytes."),
        (sampled("t", codec="none", lz4=0.9, zstd=0.85), "Keep none."),
        (
            sampled("t", lz4=1.0, zstd=0.99),
            "The content is compressed or encrypted already; compression_type='none' saves CPU time.",
        ),
        (sampled("t", codec="none", lz4=1.0, zstd=1.0), "The content is compressed or encrypted already."),
        (sampled("t", codec="gzip"), "Keep gzip."),
    ],
)
def test_a_change_is_suggested_if_it_saves_a_fifth(store, row, suggestion):
    save_compression(store, [row])
    (one,) = compression_advice(store)
    assert one.suggestion == suggestion


def test_the_topic_with_the_most_bytes_comes_first_and_rates_of_producers_are_not_added(store):
    save_compression(store, [sampled("small"), sampled("large", per_second=300.0)])
    save_compression(store, [sampled("small", producer="q", per_second=100.0)])
    assert [(one.topic, one.compression.bytes_per_second) for one in compression_advice(store)] == [
        ("large", 300.0),
        ("small", 100.0),
    ]


def test_topics_with_few_samples_are_left_out(store):
    save_compression(store, [sampled("t", samples=1)])
    assert compression_advice(store) == []


def test_the_doctor_warns_about_a_codec_that_sends_much_more_than_another(store):
    save_compression(store, [sampled("orders"), sampled("images", lz4=1.0, zstd=1.0)])
    images, orders = sorted(check_compression(store.path, ()), key=lambda one: one.check)
    assert (orders.level, images.level) == ("warning", "ok")
    assert orders.text == "lz4 leaves 50% of the bytes, zstd leaves 25%; the producer uses lz4."
    assert orders.fix.startswith("compression_type='zstd' would send 50% fewer bytes.")
    assert "compressed or encrypted already" in images.text


def test_the_doctor_checks_the_topics_that_are_named(store, tmp_path):
    save_compression(store, [sampled("orders"), sampled("images")])
    assert [one.check for one in check_compression(store.path, ["images"])] == ["compression images"]
    assert list(check_compression(tmp_path / "none.duckdb", ())) == []


def test_the_codec_that_was_used_last_counts(store):
    """Regression: the doctor warned about the codec of ended producers."""
    save_compression(store, [sampled("orders")])
    save_compression(store, [sampled("orders", codec="zstd", producer="q")._replace(measured_at=200.0)])
    assert [(one.codec, one.suggestion) for one in compression_advice(store)] == [("zstd", "Keep zstd.")]
