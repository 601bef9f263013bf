"""Edit a dead letter, and kill this process with SIGKILL at a step between the edit and the send.

python -m tests.processes.edit STORE MESSAGE_ID STEP
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from producer_core import replay
from producer_core.dlq.revisions import keep_revisions
from producer_core.replay.claims import ReplayClaims
from producer_core.store import Store
from tests.fixtures.edits import edit, fields
from tests.fixtures.replays import ALL, BY, CLUSTER


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def run(path: str, message_id: str, step: str) -> None:
    store = Store.open(Path(path))
    if step == "before the commit":
        keep_revisions._add_events = die  # the last statement of the transaction
    edit(store, fields({"amount": 7}), message_id)
    if step == "after the commit":
        die()
    operation = replay.plan(store, ALL, **BY, can_run=CLUSTER, inconclusive="send")
    if step == "after the plan":
        die()
    claims = ReplayClaims(store, operation.operation_id, "killed", lease=1.0, clock=time.time)
    assert claims.take()
    assert len(claims.settle_and_claim([], want=10, busy=False).dead_letters) == 1
    die()


if __name__ == "__main__":
    run(*sys.argv[1:])
