"""Judging: what became of each message of the suspects, by id; everything here is about few records.

Two frames go in. `told`: what the ledger says of the suspects' windows, in every partition and at every offset, with its
zone. `seen`: records of suspects that were read again; a group that equals the ledger stands as the ledger says. Out come
findings: (kind, session, seq, partition, offset, other_partition, other_offset).
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
    """Entries with the window that their sequence lies in."""
    from pyspark.sql import functions as F

    return entries.withColumn("window", F.expr(f"shiftright(seq, {SHIFT})"))


def standing(seen: DataFrame, told: DataFrame, read: DataFrame, missing: DataFrame) -> DataFrame:
    """Where messages stand: (session, seq, partition, offset, window, earlier), each place once.

    Records that were `seen`; acknowledged places in groups that were not `read`, but what is `missing` there; and
    `earlier` ones, below the range, which are not looked at: what an audit before this one has seen, or what has
    expired, stood there.
    """
    from pyspark.sql import functions as F

    place = [*ID, "partition", "offset", "window"]
    trusted = told.where("zone = 'inside'").join(read.select(*KEY), KEY, "left_anti").select(*place)
    trusted = trusted.join(missing.select(*place), place, "left_anti")
    earlier = told.where("zone in ('before', 'expired', 'taken', 'gone')").select(
        *place, F.lit(True).alias("earlier")
    )
    here = seen.select(*place).unionByName(trusted).withColumn("earlier", F.lit(False))
    return here.unionByName(earlier).groupBy(*place).agg(F.expr("bool_and(earlier)").alias("earlier"))


def ordered(places: DataFrame, told: DataFrame) -> DataFrame:
    """Places with `copy`: 1 for the message itself, more for copies of it; and the original's place.

    The original is the first in a partition where it was acknowledged; a copy elsewhere or later is a copy.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    acknowledged = told.select(*ID, "partition").distinct().withColumn("acked", F.lit(1))
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
    """Every copy in the range of a message that stands elsewhere too; `places` as `ordered` gives them."""
    return _findings(places.where("copy > 1 and not earlier"), "duplicated")


def reordered(
    places: DataFrame, compared: DataFrame, dead_letters: DataFrame, before: DataFrame | None = None
) -> DataFrame:
    """Messages that stand behind one of their session with a higher sequence, in the same partition.

    Copies do not count, neither as the one nor as the other; nor do `dead letters`, which were given up and sent again later. Within a window by a running maximum; across windows by
    where each higher window begins; and by `before`, the highest sequence acknowledged below the range, if any.
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
    """For each group the lowest offset of a higher window of its session, copies left out."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    exact = first.groupBy(*KEY).agg(F.min("offset").alias("exact"))
    here = exact.select("partition", "session").distinct()
    # A group of which records were read, and all are copies, begins nowhere.
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


def lost(places: DataFrame, told: DataFrame, unequal: DataFrame) -> DataFrame:
    """Messages that were acknowledged within the range, or above the log's end, and stand nowhere."""
    from pyspark.sql import functions as F

    missing = told.where("zone = 'inside'").join(unequal.select(*KEY), KEY, "left_semi")
    asked = missing.unionByName(told.where("zone = 'beyond'"))
    gone = asked.join(places.select(*ID).distinct(), ID, "left_anti")
    once = gone.groupBy(*ID).agg(F.min(F.struct("partition", "offset")).alias("at"))
    return _findings(_nothing_else(once.select(*ID, "at.partition", "at.offset")), "lost")


def unplaced(places: DataFrame, told: DataFrame, verdict: str) -> DataFrame:
    """Messages acknowledged nobody knows where, which stand nowhere in the range; `verdict` (SQL, may use `at`) says
    what that means."""
    from pyspark.sql import functions as F

    known = places.select(*ID).unionByName(told.where("zone <> 'unplaced'").select(*ID)).distinct()
    gone = told.where("zone = 'unplaced'").join(known, ID, "left_anti")
    once = gone.groupBy(*ID).agg(F.min("partition").alias("partition"), F.max("at").alias("at"))
    named = once.withColumn("offset", F.lit(None).cast("bigint")).withColumn("kind", F.expr(verdict))
    return _nothing_else(named).select(*COLUMNS)


def unledgered(places: DataFrame, told: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """Messages on the log that no ledger speaks of: information; those that were given up have a kind of their own."""
    from pyspark.sql import functions as F

    alone = places.where("copy = 1 and not earlier").join(told.select(*ID).distinct(), ID, "left_anti")
    named = alone.join(dead_letters.select(*ID).withColumn("dead", F.lit(True)), ID, "left")
    kind = F.when(F.col("dead"), "given_up_found").otherwise("unledgered")
    return _nothing_else(named.withColumn("kind", kind)).select(*COLUMNS)


def pending(told: DataFrame) -> DataFrame:
    """Messages that an open transaction hides."""
    return _findings(_nothing_else(told.where("zone = 'pending'")), "pending")


def _nothing_else(found: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return found.drop("other_partition", "other_offset").withColumns(
        {"other_partition": F.lit(None).cast("int"), "other_offset": F.lit(None).cast("bigint")}
    )


def _findings(found: DataFrame, kind: str) -> DataFrame:
    from pyspark.sql import functions as F

    return found.withColumn("kind", F.lit(kind)).select(*COLUMNS)


def message_id() -> Any:
    """The id as people read it, from `session` and `seq`."""
    from pyspark.sql import functions as F

    text = "lower(hex(session))"
    parts = ", ".join(
        f"substr({text}, {start}, {length})" for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )
    return F.expr(f"concat_ws('-', {parts}, cast(seq as string))")
