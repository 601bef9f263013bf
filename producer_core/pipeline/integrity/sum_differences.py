"""Explain a difference by arithmetic: where a group has one message too few or too many, its sums identify the message.

Repeated entries of the ledger are removed from its sums first. One message too few: the remainder of the ledger's
sums is a sequence and its offset, and the ledger has that entry. One too many: the sums give a sequence and an
offset, so one record is read instead of the window's whole range; it counts only when it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.metrics.ack_ledger import MODULUS, WINDOW
from producer_core.pipeline.integrity.groups import KEY, exact
from producer_core.pipeline.integrity.ledgers import SHIFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def differing(compared: DataFrame, ledger: DataFrame) -> DataFrame:
    """Return the unequal groups with `ledger_n ledger_s ledger_f` of the ledger's entries, each once.

    `repeats`: how many entries occurred more than once; `differs`: whether the log still differs from the ledger.
    """
    sums = exact(ledger)
    before = (
        compared.where("unequal").withColumnRenamed("ledger_n", "with_repeats").drop("ledger_s", "ledger_f")
    )
    beside = before.join(sums, KEY, "left")
    return beside.selectExpr(
        *KEY, "n", "s", "f", "off_min", "off_max", "coalesce(ledger_n, 0L) as ledger_n",
        "coalesce(ledger_s, 0L) as ledger_s", "coalesce(ledger_f, 0L) as ledger_f", "coalesce(with_repeats, 0L) - coalesce(ledger_n, 0L) as repeats",
        "not (n <=> ledger_n and s <=> ledger_s and f <=> ledger_f) as differs",
    )  # fmt: skip


def missing(differing: DataFrame, ledger: DataFrame) -> DataFrame:
    """Return (partition, session, window, seq, offset): the one acknowledged message that a group lacks."""
    short = differing.where("ledger_n - coalesce(n, 0) = 1").selectExpr(
        *KEY, "ledger_s - coalesce(s, 0) as place", "ledger_f - coalesce(f, 0) as mark"
    )
    entries = ledger.where("zone = 'inside'").select(*KEY, "seq", "offset")
    fits = f"seq & {WINDOW - 1} = place and (place + 1) * (offset % {MODULUS}) = mark"
    return entries.join(short, KEY).where(fits).select(*KEY, "seq", "offset")


def surplus(differing: DataFrame) -> DataFrame:
    """Return (partition, session, window, seq, offset): the expected position of a group's one record beyond the ledger.

    Only groups with exactly one possible offset are returned.
    """
    long = differing.where("n - ledger_n = 1").selectExpr(
        *KEY, "off_min", "off_max", "s - ledger_s as place", "f - ledger_f as mark"
    )
    whole = long.where(f"place between 0 and {WINDOW - 1}").where("mark >= 0 and mark % (place + 1) = 0")
    at = f"off_min + pmod(mark div (place + 1) - off_min % {MODULUS}, {MODULUS})"
    fits = f"mark div (place + 1) < {MODULUS} and offset <= off_max and offset + {MODULUS} > off_max"
    named = whole.selectExpr(
        *KEY, "off_max", "place", "mark", f"shiftleft(window, {SHIFT}) + place as seq", f"{at} as offset"
    )
    return named.where(fits).select(*KEY, "seq", "offset")
