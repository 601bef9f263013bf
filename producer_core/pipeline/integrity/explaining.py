"""Explaining a difference by arithmetic: where a group has one message too few or one too many, its sums name it.

One too few: what is left of the ledger's sums is a sequence and its offset, and the ledger has that very entry. One too
many: the sums give a sequence and an offset to look at, a read of one record instead of a window's whole stretch; it
counts only when that record is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.ledger import MODULUS, WINDOW
from producer_core.pipeline.integrity.groups import KEY
from producer_core.pipeline.integrity.ledgers import SHIFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def missing(compared: DataFrame, told: DataFrame) -> DataFrame:
    """(partition, session, window, seq, offset): the one acknowledged message that a group lacks."""
    short = compared.where("unequal and told_n - coalesce(n, 0) = 1").selectExpr(
        *KEY, "told_s - coalesce(s, 0) as place", "told_f - coalesce(f, 0) as mark"
    )
    entries = told.where("zone = 'inside'").select(*KEY, "seq", "offset")
    fits = f"seq & {WINDOW - 1} = place and (place + 1) * (offset % {MODULUS}) = mark"
    return entries.join(short, KEY).where(fits).select(*KEY, "seq", "offset")


def surplus(compared: DataFrame) -> DataFrame:
    """(partition, session, window, seq, offset): where the one record should be that a group has beyond the ledger.

    Only where one offset of its stretch fits.
    """
    long = compared.where("unequal and n - coalesce(told_n, 0) = 1").selectExpr(
        *KEY, "off_min", "off_max", "s - coalesce(told_s, 0) as place", "f - coalesce(told_f, 0) as mark"
    )
    whole = long.where(f"place between 0 and {WINDOW - 1}").where("mark >= 0 and mark % (place + 1) = 0")
    at = f"off_min + pmod(mark div (place + 1) - off_min % {MODULUS}, {MODULUS})"
    fits = f"mark div (place + 1) < {MODULUS} and offset <= off_max and offset + {MODULUS} > off_max"
    named = whole.selectExpr(
        *KEY, "off_max", "place", "mark", f"shiftleft(window, {SHIFT}) + place as seq", f"{at} as offset"
    )
    return named.where(fits).select(*KEY, "seq", "offset")
