"""The scenarios R1 to R11 with exactly once, A1 to A3 with at least once, and C1 for comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.proxy import BlackHole, Delay, Hold, Reset, Rule, Swallow
from tests.scenarios.replays.stage import POINTS

EO, ALO = "exactly_once", "at_least_once"
SHORT = 3_000


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    play: Callable
    delivery: str
    expected: str = "none"
    dead_letters: int | None = None
    """Maximum number of dead letters, if more do not add coverage."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(name, title, delivery=EO, **options):
    def keep(play):
        SCENARIOS[name] = Scenario(name, title, play, delivery, **options)
        return play

    return keep


def begin(stage, processes=1, **settings):
    stage.add_dead_letters()
    stage.plan()
    for _ in range(processes):
        stage.replay(**settings)


def kills(stage, count, **settings):
    """Kill a process at random moments and steps of the protocol, and start another one each time."""
    for moment in stage.spread(count):
        stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
        stage.kill(stage.chance.choice(POINTS) if stage.delivery == EO else None)
        stage.replay(**settings)


def timeout(stage):
    return 120 + stage.dead_letters / 100


@scenario("R1", "kill -9 at random points")
def killed(stage):
    begin(stage)
    kills(stage, 20 if stage.long else 3)
    stage.finish()


@scenario("R2", "SIGSTOP past the lease; another process takes over, and the first one resumes")
def stopped(stage):
    begin(stage, 2)
    for moment in stage.spread(10 if stage.long else 1):
        stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
        stage.pause_owner(stage.chance.choice(POINTS))
    stage.finish()


@scenario("R3", "three processes; the owner is killed")
def several(stage):
    begin(stage, 3)
    kills(stage, 10 if stage.long else 2)
    stage.finish()


@scenario(
    "R4",
    "responses, requests and connections are lost, a late EndTxn arrives during the next transaction, and kills",
)
def network(stage):
    rare = 0.2 if stage.long else 1.0
    rules = (
        Rule(Hold(10.0, into_next=True), api="EndTxn", chance=0.15 * rare),
        Rule(Swallow(0.3), api="EndTxn", chance=0.15 * rare),
        Rule(Reset(), api="EndTxn", chance=0.1 * rare),
        Rule(Swallow(0.3), api="Produce", chance=0.04 * rare),
        Rule(Reset(), api="Produce", chance=0.02 * rare),
        Rule(Hold(0.2, 3.0), api="Produce", chance=0.02 * rare),
        Rule(BlackHole(1.0), api="AddPartitionsToTxn", chance=0.03 * rare),
        Rule(Reset(), api="InitProducerId", chance=0.1),
        Rule(Delay(0.0, 0.3), api=("EndTxn", "InitProducerId"), chance=0.2 * rare),
    )
    with stage.proxy.during(*rules):
        begin(stage, 2)
        kills(stage, 10 if stage.long else 2)
        stage.finish()


@scenario("R5", "brokers are killed during the replay, both leaders and coordinators")
def brokers(stage):
    begin(stage, 2)
    cluster = stage.medium.cluster
    for moment in stage.spread(6 if stage.long else 1):
        stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
        node = stage.chance.choice(cluster.nodes).number
        cluster.kill(node)
        stage.broker_faults += 1
        if stage.chance.random() < 0.5:
            stage.kill()
            stage.replay()
        stage.pause(stage.chance.uniform(1, 8))
        cluster.start_node(node, wait=False)
        stage.medium.restore()
    stage.finish()


@scenario(
    "R6",
    "all faults at once: kills, SIGSTOP past the lease, three processes, lost responses, a failed broker",
)
def everything(stage):
    rare = 0.1 if stage.long else 0.5
    rules = (
        Rule(Hold(10.0, into_next=True), api="EndTxn", chance=0.1 * rare),
        Rule(Swallow(0.3), api=("EndTxn", "Produce"), chance=0.1 * rare),
        Rule(Reset(), api=("EndTxn", "Produce", "InitProducerId"), chance=0.1 * rare),
    )
    begin(stage, 3)
    cluster = stage.medium.cluster
    faults = [kill_one] * (20 if stage.long else 2) + [pause_one] * (6 if stage.long else 1)
    moments = stage.spread(len(faults))
    stage.chance.shuffle(faults)
    dies = stage.chance.randrange(len(moments))
    with stage.proxy.during(*rules):
        for place, (moment, inject) in enumerate(zip(moments, faults, strict=True)):
            stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
            if place == dies:
                node = stage.chance.choice(cluster.nodes).number
                cluster.kill(node)
                stage.broker_faults += 1
            inject(stage)
            if place == dies:
                cluster.start_node(node, wait=False)
                stage.medium.restore()
        stage.finish()


def pause_one(stage):
    stage.pause_owner(stage.chance.choice(POINTS))


def kill_one(stage):
    stage.kill(stage.chance.choice(POINTS))
    stage.replay()


@scenario(
    "R7",
    "a click without credentials: a live producer runs the replay, is killed, and the next one continues",
)
def clicked(stage):
    stage.add_dead_letters()
    stage.replay("live")
    stage.click()
    # the dashboard sets no rate, so the replay ends soon
    for moment in (50, stage.dead_letters // 2)[: 2 if stage.long else 1]:
        stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
        stage.kill()
        stage.replay("live")
    stage.finish()


@scenario("R8", "dlq replay --yes in a shell, killed and repeated")
def shell(stage):
    stage.add_dead_letters()
    arguments = [
        "dlq",
        "replay",
        "--bootstrap-servers",
        stage.medium.servers,
        "--yes",
        "--inconclusive",
        "send",
    ]
    for moment in stage.spread(2):
        child = stage.shell(*arguments)
        stage.await_plan(child)
        stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
        stage.kills += child.kill()
    stage.shell(*arguments)
    stage.finish()


@scenario("R9", "a replay that fails stops at its canary", dead_letters=SHORT)
def canary(stage):
    stage.add_bad_dead_letters()
    stage.plan()
    stage.replay()
    stage.finish()
    found = stage.operation()
    if found.state != "stopped" or found.failed_again > 10 or found.acknowledged:
        stage.problems.append(f"the canary did not stop the replay: {found.state}, {found.message}")


@scenario("R10", "the store is restored from a copy that was made before the replay", dead_letters=SHORT)
def store_restored(stage):
    stage.add_dead_letters()
    copy = stage.folder / "copy.duckdb"
    stage.store.snapshot(copy)
    for again in range(2):
        if again:
            stage.restore_store(copy)
        stage.plan()
        stage.replay()
        stage.finish()


@scenario(
    "R11",
    "kill -9 at each step of a wave: claimed, sending, committed, settling; with other commands in between",
    dead_letters=SHORT,
)
def steps_of_a_wave(stage):
    stage.add_dead_letters()
    stage.plan()
    for change in (False, True):
        for step in ("claimed", "sending", "committed", "settling"):
            stage.await_death(stage.replay(dies=step), step)
            if change:
                stage.change_open_wave()
    stage.replay()
    stage.finish()


@scenario("A1", "at least once, with a probe of the topics first; kill -9", ALO)
def probing(stage):
    begin(stage, 2)
    kills(stage, 20 if stage.long else 2)
    stage.finish(600)


@scenario("A2", "at least once without READ permission: kill -9, and ambiguous records are listed by id", ALO)
def without_read_access(stage):
    begin(stage, 2, probe=False)
    kills(stage, 20 if stage.long else 2, probe=False)
    stage.finish(600)
    stage.notes["doubtful"] = len(stage.listed())
    if not stage.notes["doubtful"]:
        stage.problems.append("no message was doubtful")


@scenario(
    "A3",
    "at least once: SIGSTOP past the lease and the quiet period, with unsent requests, which may be sent twice",
    ALO,
)
def stopped_at_least_once(stage):
    begin(stage, 2)
    for moment in stage.spread(2):
        stage.until(lambda moment=moment: stage.settled() >= moment, timeout(stage))
        with stage.proxy.during(Rule(Delay(0.5), api="Produce")):  # keeps some requests in the client
            stage.pause_owner(seconds=8.0)
    stage.finish(600)


@scenario(
    "C1",
    "a loop that sends each record and then marks it: must show duplicates",
    ALO,
    expected="violation",
    dead_letters=SHORT,
)
def naive(stage):
    stage.add_dead_letters()
    for moment in stage.spread(3):
        child = stage.replay("naive")
        stage.until_marked(moment)
        stage.kills += child.kill()
    stage.replay("naive")
    stage.until_marked(stage.dead_letters)
