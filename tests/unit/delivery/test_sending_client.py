"""The clients that send get the codec that was chosen last."""

from __future__ import annotations

from producer_core.config import client_config
from producer_core.delivery import sending_client


def test_each_new_client_gets_the_codec_that_was_chosen_last(monkeypatch):
    created = []
    monkeypatch.setattr(sending_client, "Producer", created.append)
    config = client_config("nowhere:9092", {"compression_type": "auto"})
    sending_client.create_producer(config.settings)
    config.compression.codec = "zstd"
    assert config.compression.used == "lz4"
    sending_client.create_producer(config.settings)
    assert [one["compression.type"] for one in created] == ["lz4", "zstd"]
    assert config.compression.used == "zstd"
    assert all("compression.choice" not in one for one in created)


def test_a_fixed_codec_stays(monkeypatch):
    created = []
    monkeypatch.setattr(sending_client, "Producer", created.append)
    sending_client.create_producer(client_config("nowhere:9092", {"compression_type": "snappy"}).settings)
    assert created[0]["compression.type"] == "snappy"
