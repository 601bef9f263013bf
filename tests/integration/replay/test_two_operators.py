"""Test operators that archive during a replay: the replay skips archived records, and both operators see that."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from producer_core import replay
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.timeline import timeline
from tests.fixtures.replays import add_dead_letters
from tests.integration.replay.test_claims import child, on_topic
from tests.support import ROOT, eventually

COUNT = 400
ANY = DeadLetterFilter(state=None)


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 2}) as running:
        yield running


def start_archive(store):
    """Start `dlq archive` as an operator does in a shell."""
    words = ["dlq", "archive", "--topic", "orders", "--yes", "--json", "--store", str(store.path)]
    return subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", *words], cwd=ROOT, stdout=subprocess.PIPE
    )


def result_of(process):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(output)


@pytest.mark.timeout(300)
def test_a_record_archived_during_a_replay_is_either_sent_or_archived_never_both(store, broker):
    ids = add_dead_letters(store, COUNT, cluster_id=broker.cluster_id)
    operation = replay.plan(
        store, DeadLetterFilter(), who="ann", origin="python", can_run=broker.cluster_id, rate=8, canary=0
    )

    with child(store, broker):
        eventually(lambda: replay.get(store, operation.operation_id).acknowledged >= 20, timeout=120)
        results = [result_of(process) for process in [start_archive(store), start_archive(store)]]
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=120)

    done, states, seen = (
        replay.get(store, operation.operation_id),
        DeadLetters(store).count_by(ANY, "state"),
        on_topic(broker),
    )
    archived = sum(result["count"] for result in results)
    assert states == {"replayed": done.acknowledged, "archived": archived}
    assert done.acknowledged + archived == COUNT and done.skipped == archived > 0
    assert {*seen.values()} == {1} and len(seen) == done.acknowledged
    assert {
        one.message_id for one in DeadLetters(store).find(DeadLetterFilter(state="archived"), limit=COUNT)
    } == {*ids} - {*seen}

    first = max(results, key=lambda result: result["count"])
    assert f"Replay {operation.operation_id} by ann skips" in first["text"]
    assert "archived" in done.message
    left_out = next(one for one in ids if one not in seen)
    assert [moment.what for moment in timeline(store, left_out)][-2:] == ["archived", "skipped"]
    assert len(store.rows("audit_latest", action="archive")) == 2
