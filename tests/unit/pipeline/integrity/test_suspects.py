"""The ranges that the second pass reads."""

from __future__ import annotations

import pyarrow as pa

from producer_core.pipeline.integrity.spans import OffsetSpan
from producer_core.pipeline.integrity.suspects import ranges_to_read


def test_a_small_partition_is_read_again_in_one_piece():
    found = pa.table(
        {"partition": [0, 0, 1, 1], "off_min": [5, 90, 5, 90_000], "off_max": [6, 95, 6, 90_000]}
    )
    small, large = OffsetSpan(0, 100, 0, 100, 100, 100), OffsetSpan(0, 100_000, 0, 100_000, 100_000, 100_000)
    assert ranges_to_read(found, {0: small, 1: large}) == {0: [(5, 96)], 1: [(5, 7), (90_000, 90_001)]}
