"""Explaining a difference by arithmetic: where a group has one message too few or one too many, its sums name it.

What batches tell twice is taken out of the ledger's sums first. One too few: what is left of the ledger's sums is a
sequence and its offset, and the ledger has that very entry. One too many: the sums give a sequence and an offset to look
at, a read of one record instead of a window's whole stretch; it counts only when that record is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.metrics.ack_ledger import MODULUS, WINDOW
from producer_core.pipeline.integrity.groups import KEY, exact
from producer_core.pipeline.integrity.ledgers import SHIFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def differing(compared: DataFrame, told: DataFrame) -> DataFrame:
    """The unequal groups with `told_n told_s told_f` of the ledger's entries, each once; `repeats`: how many of them were
    told more than once; `differs`: whether the log is unlike the ledger even so."""
    sums = exact(told)
    before = compared.where("unequal").withColumnRenamed("told_n", "said").drop("told_s", "told_f")
    beside = before.join(sums, KEY, "left")
    return beside.selectExpr(
        *KEY, "n", "s", "f", "off_min", "off_max", "coalesce(told_n, 0L) as told_n", "coalesce(told_s, 0L) as told_s",
        "coalesce(told_f, 0L) as told_f", "coalesce(said, 0L) - coalesce(told_n, 0L) as repeats",
        "not (n <=> told_n and s <=> told_s and f <=> told_f) as differs",
    )  # fmt: skip


def missing(differing: DataFrame, told: DataFrame) -> DataFrame:
    """(partition, session, window, seq, offset): the one acknowledged message that a group lacks."""
    short = differing.where("told_n - coalesce(n, 0) = 1").selectExpr(
        *KEY, "told_s - coalesce(s, 0) as place", "told_f - coalesce(f, 0) as mark"
    )
    entries = told.where("zone = 'inside'").select(*KEY, "seq", "offset")
    fits = f"seq & {WINDOW - 1} = place and (place + 1) * (offset % {MODULUS}) = mark"
    return entries.join(short, KEY).where(fits).select(*KEY, "seq", "offset")


def surplus(differing: DataFrame) -> DataFrame:
    """(partition, session, window, seq, offset): where the one record should be that a group has beyond the ledger.

    Only where one offset of its stretch fits.
    """
    long = differing.where("n - told_n = 1").selectExpr(
        *KEY, "off_min", "off_max", "s - told_s as place", "f - told_f as mark"
    )
    whole = long.where(f"place between 0 and {WINDOW - 1}").where("mark >= 0 and mark % (place + 1) = 0")
    at = f"off_min + pmod(mark div (place + 1) - off_min % {MODULUS}, {MODULUS})"
    fits = f"mark div (place + 1) < {MODULUS} and offset <= off_max and offset + {MODULUS} > off_max"
    named = whole.selectExpr(
        *KEY, "off_max", "place", "mark", f"shiftleft(window, {SHIFT}) + place as seq", f"{at} as offset"
    )
    return named.where(fits).select(*KEY, "seq", "offset")
