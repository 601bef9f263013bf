"""Edited dead letters, replayed to a broker by processes that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from producer_core import replay
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.revisions.editor import Editor
from producer_core.messages import id_text, record_id
from tests.fixtures.edits import ANN, add, edit, fields, json_dead_letter, malformed, undo
from tests.fixtures.replays import ALL, CLUSTER, ScriptedSender, message_id, runner
from tests.integration.replay.test_claims import child, orders_on
from tests.support import ROOT, eventually

COUNT = 40


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 2}) as running:
        yield running


def on_topic(broker):
    """Return the id, the value and the headers of each record on the topic."""
    return [
        (id_text(record_id(message.headers())), json.loads(message.value()), dict(message.headers()))
        for message in orders_on(broker)
    ]


@pytest.mark.timeout(300)
def test_an_edited_record_and_its_original_are_never_both_sent(store, broker):
    """Originals that may be on the topic and those that are not, edited before and during a replay whose runner is killed."""
    cluster = {"cluster_id": broker.cluster_id, "failed_at": 1000.0}
    doubtful = [json_dead_letter(one, verdict="possibly_persisted", **cluster) for one in range(0, COUNT, 2)]
    safe = [json_dead_letter(one, **cluster) for one in range(1, COUNT, 2)]
    ids = add(store, *doubtful, *safe, malformed(COUNT, **cluster))
    edit(store, fields({"amount": 7}), *ids[:5], *ids[-6:-1])
    edit(store, fields(value={"order": COUNT, "amount": 7}), ids[-1])
    choices = {
        "who": "ann",
        "origin": "python",
        "can_run": broker.cluster_id,
        "canary": 0,
        "inconclusive": "send",
    }
    operation = replay.plan(store, DeadLetterFilter(), rate=10, **choices)

    with child(store, broker, die_after=12) as process:
        eventually(lambda: process.poll() is not None, timeout=120)
    during = Editor(store)
    preview = during.preview(ALL, fields({"amount": 7}))
    kept = during.keep(preview, **ANN, reason="during the replay")
    with child(store, broker):
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=120)
        rest = replay.plan(store, DeadLetterFilter(), **choices) if DeadLetters(store).count(ALL) else None
        if rest is not None:
            eventually(lambda: replay.get(store, rest.operation_id).ended, timeout=120)

    found = on_topic(broker)
    assert kept.count > 0
    assert Counter(value["order"] for _, value, _ in found) == Counter(range(COUNT + 1))
    dead = DeadLetters(store)
    for one, value, headers in found:
        edited = Editor(store).lineage(one).revisions
        assert value["amount"] == (7 if edited else 12.5)
        assert ("pc-revision" in headers) == bool(edited)
        if "pc-replaces" in headers:
            assert dead.get(headers["pc-replaces"].decode()).state == "archived"
    assert dead.count(ALL) == 0


@pytest.mark.parametrize(
    ("step", "amount"),
    [("before the commit", 12.5), ("after the commit", 7), ("after the plan", 7), ("after the claim", 7)],
)
def test_a_process_killed_between_the_edit_and_the_send_loses_neither(store, step, amount):
    (one,) = add(store, json_dead_letter(1))
    words = [sys.executable, "-m", "tests.processes.edit", str(store.path), one, step]
    assert subprocess.run(words, cwd=ROOT, timeout=120).returncode == -signal.SIGKILL

    operations = replay.list(store)
    operation = operations[0] if operations else replay.plan(
        store, ALL, who="ann", origin="python", can_run=CLUSTER, inconclusive="send"
    )  # fmt: skip
    sender = ScriptedSender()
    running = runner(store, sender, time.time)
    running.start()
    try:
        eventually(lambda: replay.get(store, operation.operation_id).ended, timeout=60)
    finally:
        running.stop()

    assert [json.loads(record.value)["amount"] for record in sender.sent] == [amount]
    assert [record.message_id for record in sender.sent] == [message_id(1)]
    assert undo(store, one).count == 0
