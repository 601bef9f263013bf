"""Dead letters selected by an export or by a dead-letter topic."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters, files
from producer_core.pipeline.reprocess import from_sources
from producer_core.replay.operation import PIPELINE
from tests.fixtures.replays import CLUSTER, add_dead_letters, dead_letter


@pytest.mark.parametrize("name", ["dead-letters.parquet", "dead-letters.jsonl"])
def test_an_export_selects_its_dead_letters(store, tmp_path, name):
    ids = add_dead_letters(store, 20)
    some = DeadLetterFilter(ids=tuple(ids[:7]))
    files.export(store, some, tmp_path / name, who="ann", origin="cli")

    where = from_sources(DeadLetterFilter(), file=tmp_path / name)

    assert DeadLetters(store).count(where) == 7
    planned = replay.plan(store, where, who="ann", origin=PIPELINE, can_run=CLUSTER)
    assert planned.total == 7
    assert planned.query == {"file": str((tmp_path / name).resolve())}


def test_a_dead_letter_topic_selects_the_dead_letters_fetched_from_it(store):
    add_dead_letters(store, 3)
    DeadLetters(store).add(
        [dead_letter(number, source=f"orders-dlt[0]@{number} (Spring Kafka)") for number in range(5, 9)]
    )
    DeadLetters(store).add([dead_letter(20, source="orders-dlt-2[0]@1 (Spring Kafka)")])

    assert DeadLetters(store).count(from_sources(DeadLetterFilter(), dead_letter_topic="orders-dlt")) == 4
    assert from_sources(DeadLetterFilter(topic="a")) == DeadLetterFilter(topic="a")
