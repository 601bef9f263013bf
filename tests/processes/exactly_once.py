"""Send messages exactly once through a journal until a test kills this process.

    python -m tests.processes.exactly_once SERVERS TOPIC JOURNAL ACCEPTED [--finish]

Each sequence is written to ACCEPTED once the journal has it. With --finish the process sends no new messages and ends
when all messages of earlier processes are on the topic.
"""

from __future__ import annotations

import os
import sys

from producer_core.delivery.journal import Journal, JournalRecord
from producer_core.messages import Placement
from tests.fixtures.exactly_once import Sender

SETTINGS = {
    "queue.buffering.max.messages": 400,
    "request.timeout.ms": 5000,
    "socket.timeout.ms": 6000,
    "reconnect.backoff.max.ms": 500,
}


def main(servers, topic, folder, accepted, finish):
    accepted_file = os.open(accepted, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Journal.open(folder) as journal:
        with Sender(
            servers, topic, progress=journal, ids=journal.ids, settings=SETTINGS, messages=int(os.environ.get("TRANSACTION", "100"))
        ) as sender:  # fmt: skip
            unsettled = list(journal.read())
            seq = journal.next_sequence
            for record in unsettled:
                sender.offer(sender.delivery(record.seq, partition=record.placement.partition))
            while not finish:
                partition = seq % 4 if seq % 3 else -1
                journal.append(
                    JournalRecord(
                        seq, topic, None, sender.delivery(seq).value, placement=Placement(partition)
                    )
                )
                os.write(accepted_file, f"{seq}\n".encode())
                sender.offer(sender.delivery(seq, partition=partition))
                seq += 1
            sender.wait(len(unsettled), 120)
            assert journal.unsettled() == 0
            assert sender.listener.failed == {}


if __name__ == "__main__":
    main(*sys.argv[1:5], finish=sys.argv[5:] == ["--finish"])
