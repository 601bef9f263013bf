"""Dead letters as a masked frame."""

from __future__ import annotations

import pandas as pd
import pytest

from producer_core import DeadLetterFilter
from tests.fixtures.frames import failing, producer_of


@pytest.mark.slow
def test_stored_dead_letters_convert_to_a_masked_dataframe(tmp_path):
    with producer_of(failing(2), tmp_path / "s.duckdb") as producer:
        cards = pd.DataFrame({"id": [1, 2], "card": ["4111 1111 1111 1111", "none"]})
        producer.send_frame(cards, "orders", key="card")
        masked = producer.dlq.to_frame(bodies=True)
        assert "1111 1111" not in masked.to_csv() and len(masked) == 2
        assert str(masked["failed_at"].dtype).startswith("datetime64") and "UTC" in str(
            masked["failed_at"].dtype
        )
        raw = producer.dlq.to_frame(DeadLetterFilter(topic="orders"), bodies=True, masked=False)
        assert "4111 1111" in raw.to_csv()
        assert producer.monitor().audit()[0]["action"] == "reveal"
        assert len(producer.dlq.to_frame(limit=1)) == 1
        assert producer.dlq.to_frame(kind="arrow").num_rows == 2


def test_dead_letters_in_memory_convert_to_a_dataframe():
    with producer_of(failing(1), None) as producer:
        producer.send_frame(pd.DataFrame({"id": [1]}), "orders")
        assert list(producer.dlq.to_frame()["code"]) == ["POLICY_VIOLATION"]
