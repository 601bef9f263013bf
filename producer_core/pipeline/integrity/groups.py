"""Sum a window of one session in one partition where Spark reads its records, for ranges whose ids do not fit the driver.

Equal count, sum and fingerprint show that each acknowledged message is at the very offset that was acknowledged. So
millions of records become thousands of groups, and only the groups are shuffled. `sql/comparison.sql` has the same sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.metrics.ack_ledger import MODULUS, WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHIFT = 12
"""A window has 2 ** 12 sequences."""

KEY = ["partition", "session", "window_no"]
_INDEX = f"seq & {WINDOW - 1}"
_SUMS = {
    "n": "count(*)",
    "s": f"sum({_INDEX})",
    "f": f"sum((({_INDEX}) + 1) * (offset % {MODULUS}))",
    "off_min": "min(offset)",
    "off_max": "max(offset)",
}


def groups(records: DataFrame) -> DataFrame:
    """Return the log's groups: count, sum, fingerprint, lowest and highest offset.

    Records without a message id form one group per partition, without a session.
    """
    from pyspark.sql import functions as F

    sums = [F.expr(text).alias(name) for name, text in _SUMS.items()]
    return windowed(records).groupBy(*KEY).agg(*sums)


def records_of(records: DataFrame, chosen: DataFrame) -> DataFrame:
    """Return (partition, offset, id) of those records that belong to the chosen groups."""
    ours = windowed(records.where("session is not null"))
    return ours.join(chosen, KEY, "left_semi").select("partition", "offset", "id")


def windowed(records: DataFrame) -> DataFrame:
    """Add the window of each record's sequence."""
    from pyspark.sql import functions as F

    return records.withColumn("window_no", F.expr(f"shiftright(seq, {SHIFT})"))
