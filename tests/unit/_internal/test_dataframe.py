"""The kinds of frames."""

from __future__ import annotations

import pyarrow as pa
import pytest

from producer_core.errors import ConfigError
from producer_core.producer.frames import make_frame


def test_an_unknown_or_missing_kind_of_frame_raises_an_error(monkeypatch):
    table = pa.table({"a": [1]})
    with pytest.raises(ConfigError, match="'excel' is not a kind of frame"):
        make_frame(table, "excel")
    monkeypatch.setattr("producer_core._internal.dataframe.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install polars"):
        make_frame(table, "polars")
    assert make_frame(table) is table
