"""Checkpoints: intact, of one cluster, of one store, and used by one job at a time."""

from __future__ import annotations

import pytest

from producer_core.errors import CheckpointDamaged, ConfigError, PipelineError
from producer_core.pipeline import checkpoint
from producer_core.store import Store


def make_checkpoint(folder):
    spark = folder / "spark"
    for log in ("offsets", "commits", "sources/0"):
        (spark / log).mkdir(parents=True)
    (spark / "metadata").write_text('{"id":"1f2e"}')
    (spark / "sources/0/0").write_text('\0v1\n{"t":{"0":0}}')
    for number in range(12):
        (spark / "offsets" / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}')
        (spark / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return spark


def test_an_intact_checkpoint_and_a_new_one_pass_the_check(tmp_path):
    checkpoint.check_files(tmp_path)
    make_checkpoint(tmp_path)
    checkpoint.check_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("metadata", "{", "metadata is not JSON"),
        ("metadata", "{}", "names no query"),
        ("offsets/11", "", "offsets/11 is cut off"),
        ("offsets/11", "v1\n", "is cut off"),
        ("offsets/11", 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":', "is not JSON"),
        ("commits/11", "\0\0\0\0", "is not Spark's"),
        ("commits/10", "v1\nnothing", "is not JSON"),
        ("sources/0/0", "\0", "is cut off"),
    ],
)
def test_a_damaged_checkpoint_is_reported_with_its_file(tmp_path, name, text, why):
    (make_checkpoint(tmp_path) / name).write_text(text)

    with pytest.raises(CheckpointDamaged, match=why) as raised:
        checkpoint.check_files(tmp_path)
    assert "not counted twice" in str(raised.value)


def test_a_checkpoint_without_its_metadata_is_damaged(tmp_path):
    (make_checkpoint(tmp_path) / "metadata").unlink()
    with pytest.raises(CheckpointDamaged, match="metadata is missing"):
        checkpoint.check_files(tmp_path)


def test_a_checkpoint_of_another_cluster_is_rejected(tmp_path):
    with checkpoint.locked(tmp_path, "one"):
        pass
    with pytest.raises(ConfigError, match="belongs to cluster one"), checkpoint.locked(tmp_path, "two"):
        pass
    with checkpoint.locked(tmp_path, "one"):
        pass


def test_a_re_created_topic_is_rejected(tmp_path):
    with checkpoint.locked(tmp_path, "c", {"one": "id-1"}), pytest.raises(ConfigError, match="re-created"):
        checkpoint.check_cluster(tmp_path, "c", {"one": "id-2"})
    with checkpoint.locked(tmp_path, "c", {"two": "id-3"}):
        checkpoint.check_cluster(tmp_path, "c", {"one": "id-1", "two": "id-3"})


def test_a_checkpoint_needs_a_store_that_merged_the_batches_it_counts_as_read(tmp_path):
    make_checkpoint(tmp_path)
    place = tmp_path / "s.duckdb"
    with pytest.raises(ConfigError, match="ahead of the store"):
        checkpoint.check_store(tmp_path, place, None)
    store = Store.open(place)
    with pytest.raises(ConfigError, match="ahead of the store"):
        checkpoint.check_store(tmp_path, place, store)
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO pipeline_progress VALUES ('1f2e', 12, 1.0)")

    # One more than Spark committed: the process was killed between the two commits.
    checkpoint.check_store(tmp_path, place, store)
    checkpoint.check_store(tmp_path / "new", place, None)


def test_a_checkpoint_is_used_by_one_job_at_a_time(tmp_path):
    with checkpoint.locked(tmp_path, "c"):
        with (
            pytest.raises(PipelineError, match="Another job is using the checkpoint"),
            checkpoint.locked(tmp_path, "c"),
        ):
            pass
