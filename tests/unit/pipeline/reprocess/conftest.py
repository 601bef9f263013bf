"""A store, and a topic in memory with the batches that were written to it."""

from __future__ import annotations

import threading

import pytest

from producer_core.delivery.exactly_once.read_back import ReadBackResult
from producer_core.pipeline.reprocess import offset_floors, spark_replay
from producer_core.pipeline.reprocess.packing import unpacked
from producer_core.replay.outcome import RecordOutcome
from producer_core.store import Store
from tests.fixtures.reprocess import HOLDS_ALL, Log


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def log(monkeypatch):
    found = Log()

    class Lookup:
        floors = HOLDS_ALL

        def __init__(self, settings, operation_id, **_):
            pass

        def begin(self, topics):
            if topics:
                found.sealed.append("begun")

        def after(self, orphans):
            return [
                RecordOutcome(
                    one.dead_letter.message_id,
                    "landed",
                    "there",
                    0,
                    found.on_topic[one.dead_letter.message_id],
                )
                if one.dead_letter.message_id in found.on_topic
                else RecordOutcome(one.dead_letter.message_id, "pending")
                for one in orphans
            ]

        def close(self):
            pass

    def seal(settings, progress, operation_id, slices, number, **_):
        found.sealed.append((tuple(slices), number))
        return dict.fromkeys(slices, 0)

    class Batch:
        """A batch that ends at once, except one without an answer."""

        sender = "Spark"

        def __init__(self, session, table, task):
            self._answer = found.answers.pop(0)
            self._rows = [
                {"slice": row["slice"], "message_id": one.message_id, "ord": ord_}
                for row in table.to_pylist()
                for ord_, one in enumerate(unpacked(row["dead_letters"]))
            ]
            found.batches.append(([row["message_id"] for row in self._rows], task.number))
            found.rates.append(task.rate)
            self.began = spark_replay.time.monotonic() - (found.durations.pop(0) if found.durations else 0.0)
            self.done = threading.Event()

        def start(self):
            if self._answer is not None:
                self.done.set()

        def cancel(self):
            found.cancelled += 1

        def outcomes(self):
            return self._answer(self._rows)

    monkeypatch.setattr(spark_replay, "TransactionalReplay", Lookup)
    monkeypatch.setattr(spark_replay, "seal", seal)
    monkeypatch.setattr(spark_replay, "SparkBatch", Batch)
    monkeypatch.setattr(spark_replay, "_GRACE", 0.0)
    monkeypatch.setattr(spark_replay, "DRIVER_LIMIT", 0)
    monkeypatch.setattr(offset_floors, "REFRESH_INTERVAL", 0.0)
    monkeypatch.setattr(
        spark_replay, "ReadBack", lambda *_: lambda starts, _: ReadBackResult(ends=dict.fromkeys(starts, 100))
    )
    return found
