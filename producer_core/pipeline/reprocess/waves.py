"""A wave: letters that go out at once, as a chain of DataFrame to DataFrame functions, and the run of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from producer_core.errors import PipelineError, ProducerError
from producer_core.pipeline.reprocess.sending import LETTER, OUTCOME, Errand, runner
from producer_core.pipeline.reprocess.slices import Slicing, places
from producer_core.pipeline.spark_errors import explained

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from producer_core.events import DeadLetter


class WaveLost(Exception):
    """Spark gave the wave up; `error` says why. Any part of it may have been sent."""

    def __init__(self, error: ProducerError) -> None:
        super().__init__(str(error))
        self.error = error


def table(letters: Sequence[DeadLetter], slicing: Slicing) -> pyarrow.Table:
    """The letters with their slices, in the order in which they are to go."""
    import pyarrow

    slices = [slicing.of(letter) for letter in letters]
    place = places(sorted({*slices}))
    rows = [
        _row(letter, slice_, place, ord_)
        for ord_, (letter, slice_) in enumerate(zip(letters, slices, strict=True))
    ]
    return pyarrow.Table.from_pylist(rows, schema=letter_schema())


def _row(letter: DeadLetter, slice_: int, place: Mapping[int, int], ord_: int) -> dict[str, Any]:
    return {
        "slice": slice_,
        "place": place[slice_],
        "ord": ord_,
        "message_id": letter.message_id,
        "topic": letter.topic,
        "partition": letter.partition,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"name": name, "value": value} for name, value in letter.headers],
        "timestamp_ms": letter.timestamp_ms,
        "accepted_at": letter.accepted_at,
        "verdict": letter.verdict,
        "verdict_reason": letter.verdict_reason,
    }


def letter_schema() -> pyarrow.Schema:
    import pyarrow as pa

    header = pa.struct([("name", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("slice", pa.int32()), ("place", pa.int32()), ("ord", pa.int32()), ("message_id", pa.string()),
            ("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()),
            ("headers", pa.list_(header)), ("timestamp_ms", pa.int64()), ("accepted_at", pa.float64()),
            ("verdict", pa.string()), ("verdict_reason", pa.string()),
        ]
    )  # fmt: skip


def apart(letters: DataFrame, count: int) -> DataFrame:
    """Each slice whole in one Spark partition, in its order."""
    return letters.repartition(count, "place").sortWithinPartitions("slice", "ord")


def sent(letters: DataFrame, errand: Errand) -> DataFrame:
    """What became of each letter."""
    return letters.mapInArrow(runner(errand), OUTCOME)


class Wave(threading.Thread):
    """One wave on its way: Spark's answer is waited for in a thread of its own. Used by one other thread."""

    def __init__(self, session: SparkSession, letters: pyarrow.Table, errand: Errand) -> None:
        super().__init__(name="reprocess-wave", daemon=True)
        self.done = threading.Event()
        self.began = time.monotonic()
        self._session = session
        self._letters = letters
        self._errand = errand
        self._group = f"reprocess-{errand.operation_id}-{errand.number}"
        self._rows: list[dict[str, Any]] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._session.sparkContext.setJobGroup(self._group, f"replay {self._errand.operation_id}")
            count = len(self._letters["slice"].unique())
            letters = self._session.createDataFrame(self._letters, LETTER)
            self._rows = sent(apart(letters, count), self._errand).toArrow().to_pylist()
        except Exception as error:  # noqa: BLE001  Spark's and py4j's own have no common root
            self._error = error
        finally:
            self.done.set()

    def cancel(self) -> None:
        """Its tasks may live on for a moment, until their slices are sealed."""
        with contextlib.suppress(Exception):  # the JVM may be gone
            self._session.sparkContext.cancelJobGroup(self._group)

    def outcomes(self) -> list[dict[str, Any]]:
        """What its tasks said. WaveLost when Spark gave it up."""
        if self._error is None:
            return self._rows
        told = explained(self._error) or PipelineError(f"Spark failed: {type(self._error).__name__}.")
        raise WaveLost(told) from self._error
