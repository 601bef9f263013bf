"""The client of a replay, on a simulated cluster."""

from __future__ import annotations

from producer_core._internal.compression_choice import codec_of
from producer_core.brokers import embedded
from producer_core.config import client_config
from producer_core.replay.fenced_client import FencedClient
from producer_core.replay.supervisor import Supervisor


def test_the_client_of_a_replay_does_not_change_the_codec_that_its_producer_uses():
    """Regression: doctor named the codec of a replay as the one that the producer uses."""
    with embedded.start() as broker:
        config = client_config(broker.bootstrap_servers, {"compression_type": "auto"})
        config.compression()  # the producer's client
        config.compression.codec = "zstd"
        fenced = FencedClient(config.settings, "operation", Supervisor(lambda: False, lambda text: None))
        fenced.fence()
        assert fenced.live.alive
        fenced.destroy()
    assert codec_of(config.settings) == "lz4"
    assert codec_of(fenced._settings) == "zstd"
