"""Decide, by id, what happened to each message of the suspects; all frames here are small.

Inputs: `ledger` holds the ledger's entries in the suspects' windows, in every partition and at every offset, with
their zone. `seen` holds the suspects' records that were read again; a group that equals the ledger is where the
ledger says. Output: findings of (kind, session, seq, partition, offset, other_partition, other_offset).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from producer_core.pipeline.integrity.groups import KEY
from producer_core.pipeline.integrity.ledgers import SHIFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ID = ["session", "seq"]
COLUMNS = ["kind", *ID, "partition", "offset", "other_partition", "other_offset"]


def windowed(entries: DataFrame) -> DataFrame:
    """Add the window of each entry's sequence."""
    from pyspark.sql import functions as F

    return entries.withColumn("window", F.expr(f"shiftright(seq, {SHIFT})"))


def placements(seen: DataFrame, ledger: DataFrame, read: DataFrame, missing: DataFrame) -> DataFrame:
    """Return where messages are: (session, seq, partition, offset, window, earlier), each place once.

    These are the records in `seen`; the acknowledged places of groups not in `read`, without those in `missing`; and
    `earlier` places below the range, which are not read again because an earlier audit has seen them, or they have
    expired.
    """
    from pyspark.sql import functions as F

    place = [*ID, "partition", "offset", "window"]
    trusted = ledger.where("zone = 'inside'").join(read.select(*KEY), KEY, "left_anti").select(*place)
    trusted = trusted.join(missing.select(*place), place, "left_anti")
    earlier = ledger.where("zone in ('before', 'expired', 'taken', 'gone')").select(
        *place, F.lit(True).alias("earlier")
    )
    here = seen.select(*place).unionByName(trusted).withColumn("earlier", F.lit(False))
    return here.unionByName(earlier).groupBy(*place).agg(F.expr("bool_and(earlier)").alias("earlier"))


def with_copies(places: DataFrame, ledger: DataFrame) -> DataFrame:
    """Add `copy`, 1 for the message itself and more for its copies, and the original's place.

    The original is the first record in a partition where it was acknowledged; records elsewhere or later are copies.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    acknowledged = ledger.select(*ID, "partition").distinct().withColumn("acked", F.lit(1))
    marked = places.join(acknowledged, [*ID, "partition"], "left").withColumn(
        "acked", F.coalesce("acked", F.lit(0))
    )
    order = Window.partitionBy(*ID).orderBy(F.desc("acked"), F.desc("earlier"), "partition", "offset")
    return (
        marked.withColumn("copy", F.row_number().over(order))
        .withColumn("other_partition", F.first("partition").over(order))
        .withColumn("other_offset", F.first("offset").over(order))
    )


def duplicated(places: DataFrame) -> DataFrame:
    """Return every copy in the range of a message that is elsewhere, too; `with_copies` makes `places`."""
    return _findings(places.where("copy > 1 and not earlier"), "duplicated")


def reordered(
    places: DataFrame, compared: DataFrame, dead_letters: DataFrame, before: DataFrame | None = None
) -> DataFrame:
    """Return messages after one of their session with a higher sequence, in the same partition.

    Copies do not count on either side, nor do `dead_letters`, which were dropped and sent again later. Within a
    window a running maximum decides; across windows the offset where each higher window begins, and `before`, the
    highest sequence acknowledged below the range, if any.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    first = places.where("copy = 1 and not earlier").drop("other_partition", "other_offset")
    ahead = (
        Window.partitionBy(*KEY).orderBy("offset").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    top = F.max(F.struct("seq", "offset")).over(ahead)
    within = first.withColumn("top", top)
    found = within.join(_begins(first, compared), KEY, "left")
    at = "when top.seq > seq then top.offset when higher.off_min < offset then higher.off_min"
    if before is not None:
        found = found.join(before, ["partition", "session"], "left")
        at += " when before.seq > seq then before.offset"
    late = found.withColumn("other_offset", F.expr(f"case {at} end")).where("other_offset is not null")
    late = late.join(dead_letters.select(*ID), ID, "left_anti")
    return _findings(late.withColumn("other_partition", F.col("partition")), "reordered")


def _begins(first: DataFrame, compared: DataFrame) -> DataFrame:
    """Return for each group the lowest offset of a higher window of its session, without copies."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    exact = first.groupBy(*KEY).agg(F.min("offset").alias("exact"))
    here = exact.select("partition", "session").distinct()
    # A group whose read records are all copies has no beginning.
    all_groups = compared.where("n is not null").join(here, ["partition", "session"], "left_semi")
    begins = all_groups.join(exact, KEY, "left").withColumn(
        "begin", F.expr("if(unequal or doubtful, exact, off_min)")
    )
    higher = (
        Window.partitionBy("partition", "session").orderBy("window").rowsBetween(1, Window.unboundedFollowing)
    )
    lowest = F.min(F.expr("if(begin is null, null, named_struct('off_min', begin, 'of', window))")).over(
        higher
    )
    return begins.select(*KEY, lowest.alias("higher"))


def lost(places: DataFrame, ledger: DataFrame, unequal: DataFrame) -> DataFrame:
    """Return messages that were acknowledged within the range, or above the log's end, and are nowhere in the log."""
    from pyspark.sql import functions as F

    missing = ledger.where("zone = 'inside'").join(unequal.select(*KEY), KEY, "left_semi")
    candidates = missing.unionByName(ledger.where("zone = 'beyond'"))
    gone = candidates.join(places.select(*ID).distinct(), ID, "left_anti")
    once = gone.groupBy(*ID).agg(F.min(F.struct("partition", "offset")).alias("at"))
    return _findings(_without_other(once.select(*ID, "at.partition", "at.offset")), "lost")


def unplaced(places: DataFrame, ledger: DataFrame, verdict: str) -> DataFrame:
    """Return messages that were acknowledged without an offset and are not in the range.

    `verdict` (SQL, may use `at`) decides their kind.
    """
    from pyspark.sql import functions as F

    known = places.select(*ID).unionByName(ledger.where("zone <> 'unplaced'").select(*ID)).distinct()
    gone = ledger.where("zone = 'unplaced'").join(known, ID, "left_anti")
    once = gone.groupBy(*ID).agg(F.min("partition").alias("partition"), F.max("at").alias("at"))
    named = once.withColumn("offset", F.lit(None).cast("bigint")).withColumn("kind", F.expr(verdict))
    return _without_other(named).select(*COLUMNS)


def unledgered(places: DataFrame, ledger: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Return messages in the log that are in no ledger, for information; dropped ones have a kind of their own."""
    from pyspark.sql import functions as F

    unknown = places.where("copy = 1 and not earlier").join(ledger.select(*ID).distinct(), ID, "left_anti")
    named = unknown.join(dead_letters.select(*ID).withColumn("dead", F.lit(True)), ID, "left")
    kind = F.when(F.col("dead"), "given_up_found").otherwise("unledgered")
    return _without_other(named.withColumn("kind", kind)).select(*COLUMNS)


def pending(ledger: DataFrame) -> DataFrame:
    """Return messages that an open transaction hides."""
    return _findings(_without_other(ledger.where("zone = 'pending'")), "pending")


def _without_other(found: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return found.drop("other_partition", "other_offset").withColumns(
        {"other_partition": F.lit(None).cast("int"), "other_offset": F.lit(None).cast("bigint")}
    )


def _findings(found: DataFrame, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    return found.withColumn("kind", F.lit(kind)).select(*COLUMNS)


def message_id() -> Any:
    """Return the message id as text, from `session` and `seq`."""
    from pyspark.sql import functions as F

    text = "lower(hex(session))"
    parts = ", ".join(
        f"substr({text}, {start}, {length})" for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    return F.expr(f"concat_ws('-', {parts}, cast(seq as string))")
