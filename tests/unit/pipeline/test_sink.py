"""A micro-batch in pieces: the store counts it as merged once all pieces are, after any kill or stop in between."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet

from producer_core.cli.telemetry_output import merged
from producer_core.errors import ConfigError, PipelineError
from producer_core.metrics.telemetry import SCHEMA_VERSION, encode
from producer_core.pipeline import sink as module
from producer_core.pipeline.merge_batch import merged_through, missing
from producer_core.pipeline.merge_result import MergeResult, summary
from producer_core.pipeline.sink import TelemetrySink
from producer_core.store import Batch, Store
from tests.fixtures.spark import Killed


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (MergeResult(), "No new batches arrived; /fleet.duckdb is unchanged."),
        (MergeResult(1, 0), "1 batch arrived; /fleet.duckdb already had it."),
        (MergeResult(1200, 0), "1,200 batches arrived; /fleet.duckdb already had them."),
        (MergeResult(15, 15), "Merged 15 batches into /fleet.duckdb."),
        (MergeResult(15, 12), "Merged 12 of 15 batches into /fleet.duckdb, which already had the others."),
    ],
)
def test_the_result_of_a_run_is_one_sentence(done, words):
    assert merged(done, Path("/fleet.duckdb")) == words


def test_a_run_without_batches_has_a_summary():
    assert summary(MergeResult(), None) == "no batches yet"
    assert summary(MergeResult(15, 12), 3) == "merged 12 of 15 batches; 3 records behind"


def piece(*numbers, version=SCHEMA_VERSION):
    """Return a piece as Spark fetches it."""
    values = [encode(Batch("p1", number)) for number in numbers]
    if version is None:
        values = [b"not JSON"] * len(numbers)
    elif version != SCHEMA_VERSION:
        values = [value.replace(b'"v":1', b'"v":%d' % version) for value in values]
    count = len(numbers)
    return pa.table(
        {
            "topic": ["t"] * count, "partition": pa.array([0] * count, pa.int32()), "offset": list(numbers),
            "timestamp": [0] * count, "key": pa.nulls(count, pa.binary()), "value": pa.array(values, pa.binary()),
        }
    )  # fmt: skip


def pieces_of(*pieces):
    return lambda records, options: ((each, number == len(pieces)) for number, each in enumerate(pieces, 1))


RECORDS = SimpleNamespace(
    sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda name: "q"))
)


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def sink(store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "pieces", pieces_of(piece(0, 1), piece(2), piece(3)))

    def make(reached=lambda point: None):
        return TelemetrySink(store, tmp_path / "aside", None, results.append, reached, options={})

    results = []
    make.results = results
    return make


def test_a_micro_batch_counts_as_merged_once_all_of_its_pieces_are(sink, store):
    seen = []

    def reached(point):
        if point == "merged":
            seen.append(merged_through(store, "q"))

    sink(reached)(RECORDS, 5)

    assert seen == [-1, -1, 5]
    assert [(done.batches, done.merged) for done in sink.results] == [(4, 4)]


def test_after_a_kill_between_two_pieces_the_repeat_adds_the_rest(sink, store):
    left = iter([False, True])

    def reached(point):
        if point == "drafted" and next(left):
            raise Killed

    with pytest.raises(Killed):
        sink(reached)(RECORDS, 5)
    assert merged_through(store, "q") == -1
    sink()(RECORDS, 5)

    assert merged_through(store, "q") == 5
    assert [(done.batches, done.merged) for done in sink.results] == [(4, 2)]
    assert missing(store) == (0, 0)


def test_an_ending_job_stops_between_two_pieces(sink, store):
    def reached(point):
        if point == "merged":
            one._ending = True

    one = sink(reached)
    with pytest.raises(PipelineError, match="The job is stopping"):
        one(RECORDS, 5)

    assert merged_through(store, "q") == -1


def test_a_topic_without_telemetry_is_rejected_and_not_copied(sink, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "pieces", pieces_of(piece(*range(100), version=None)))
    with pytest.raises(ConfigError, match="None of the first 100 records is telemetry"):
        sink()(RECORDS, 0)
    assert not (tmp_path / "aside").exists()


@pytest.mark.parametrize(("count", "version", "batch_id"), [(99, None, 0), (100, 2, 0), (100, None, 1)])
def test_a_few_foreign_records_or_a_newer_schema_are_set_aside_readable_only_by_the_owner(
    sink, tmp_path, monkeypatch, count, version, batch_id
):
    monkeypatch.setattr(module, "pieces", pieces_of(piece(*range(count), version=version)))
    sink()(RECORDS, batch_id)

    (file,) = (tmp_path / "aside").iterdir()
    assert [done.versions for done in sink.results] == [{version: count}]
    assert parquet.read_table(file)["v"].to_pylist() == [version] * count
    assert {path.stat().st_mode & 0o077 for path in (file.parent, file)} == {0}
