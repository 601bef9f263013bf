"""The scenarios S30 to S33: new producer epochs under other settings, and requests of a leader that was stopped."""

from __future__ import annotations

from tests.proxy import Partition, Rule
from tests.scenarios.faults.scenario import ALO, scenario
from tests.scenarios.faults.scenarios import epoch_trap
from tests.scenarios.faults.scenarios_beside import send

DEAD_LETTER = {"on_ambiguous": "dead_letter"}


@scenario(
    "S30", "the leader is stopped for minutes with requests in its socket", ("kafka3", ALO), in_tests=False
)
def leader_stopped(stage):
    """A message with the verdict absent must not arrive when the old leader continues."""
    stage.ordered = False  # a message that was dropped and arrives late is after later ones
    config = {
        "message.timeout.ms": 5000,
        "request.timeout.ms": 2000,
        "socket.timeout.ms": 3000,
        "linger.ms": 0,
    }
    stage.write(rate=60, config=config, retry={"max_retries": 0}, options=DEAD_LETTER)
    send(stage)
    leader = stage.medium.leader(stage.topic)
    stage.medium.cluster.pause(leader)
    stage.broker_faults += 1
    stage.pause(600 if stage.long else 75)
    stage.medium.cluster.resume(leader)
    stage.pause(10)
    send(stage)
    stage.finish()


@scenario("S31", "the same as S6 with a journal", ("kafka3", ALO), in_tests=False)
def rejected_elsewhere_with_a_journal(stage):
    stage.journal = stage.folder / "journal"
    epoch_trap(stage, "reliable")


@scenario("S32", 'the same as S6 with on_ambiguous="dead_letter"', ("kafka3", ALO), in_tests=False)
def rejected_elsewhere_with_dead_letters(stage):
    stage.ordered = False
    epoch_trap(stage, "reliable", options=DEAD_LETTER)


@scenario(
    "S33", "the network is partitioned for longer than the delivery timeout", ("kafka3", ALO), in_tests=False
)
def partitioned(stage):
    """Messages expire during the partition, which raises the epoch of all partitions."""
    config = {"message.timeout.ms": 6000, "request.timeout.ms": 2000, "socket.timeout.ms": 3000}
    stage.write(rate=400, config=config)
    for number in range(12 if stage.long else 3):
        send(stage)
        leader = stage.medium.leader(stage.topic, number % 4)
        with stage.inject(Rule(Partition("answers" if number % 2 else "both"), broker=leader)):
            stage.pause(8)
        stage.broker_faults += 1
    send(stage)
    stage.finish()
