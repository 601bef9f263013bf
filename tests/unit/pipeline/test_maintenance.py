"""The maintenance beside a job continues after an error."""

from __future__ import annotations

import time

import pytest

from producer_core.errors import PipelineError
from producer_core.pipeline import maintenance as module
from producer_core.pipeline.maintenance import finish, maintained
from producer_core.pipeline.parquet_history import ParquetHistory
from producer_core.store import Store
from tests.support import eventually


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def damaged(tmp_path, store):
    """A history with a file that cannot be published."""
    history = ParquetHistory(tmp_path / "history")
    history.open(store)
    (tmp_path / "history" / "_waiting" / "2026-01-01T00-00000000.batches").write_bytes(b"damaged")
    yield history
    history.close()


@pytest.mark.timeout(60)
def test_a_damaged_file_of_the_history_does_not_end_the_maintenance(store, damaged, monkeypatch, caplog):
    monkeypatch.setattr(module, "_INTERVAL", 0.02)
    with maintained(store, damaged, time.time):
        eventually(
            lambda: [line.getMessage()[:18] for line in caplog.records][:2] == ["maintenance failed"] * 2, 20
        )


def test_a_history_that_cannot_be_published_at_the_end_of_a_run_is_an_error_with_its_fix(store, damaged):
    with pytest.raises(PipelineError, match=r"cannot be published: .* next run publishes them"):
        finish(store, damaged, time.time())
