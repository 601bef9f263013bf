"""R1 to R5: Spark replays many dead letters while workers, executors, drivers, brokers and responses are lost."""

from __future__ import annotations

import signal
import time

from producer_core.brokers import kafka
from tests.proxy import BlackHole, Delay, FaultProxy, Hold, Reset, Rule, Swallow
from tests.scenarios.pipelines.scenario import scenario
from tests.scenarios.pipelines.shop import FaultyShop, Shop

SIZES = {
    "full": {"dead_letters": 200_000, "workers": 20, "drivers": 5, "wave": 2_500},
    "short": {"dead_letters": 10_000, "workers": 3, "drivers": 1, "wave": 1_000},
}


@scenario("R1", "reprocess: kill -9 of Python workers, of the driver and of its JVM", sizes=SIZES)
def killed(stage):
    play(stage, stage.kafka(3), kinds=("worker", "driver", "jvm"))


@scenario(
    "R2", "the same on a standalone master with two workers, with lost executors", master="standalone", sizes=SIZES,
)  # fmt: skip
def killed_elsewhere(stage):
    play(stage, stage.kafka(3), kinds=("worker", "driver", "executor"))


@scenario(
    "R3", "two drivers at once: the first is suspended past its lease while its tasks continue, and then resumes",
    sizes={"full": {"dead_letters": 60_000, "stops": 3, "wave": 5_000}, "short": {"dead_letters": 10_000, "stops": 1, "wave": 1_000}},
)  # fmt: skip
def stopped(stage):
    shop = Shop(stage, stage.kafka(3))
    for moment in spread(stage, stage.size["stops"]):
        first = shop.driver()
        shop.until(moment, first)
        first.send_signal(signal.SIGSTOP)
        second = shop.driver()
        shop.until(moment + shop.dead_letters // 20, second)
        first.send_signal(signal.SIGCONT)
        shop.kills["drivers_stopped"] += 1
        shop.kill_driver(second if stage.chance.random() < 0.5 else first)
    shop.finish()


@scenario(
    "R4", "lost responses, lost connections, a late EndTxn in the middle of the next transaction, and kills",
    sizes={"full": {"dead_letters": 40_000, "workers": 5, "drivers": 2, "wave": 2_000},
           "short": {"dead_letters": 4_000, "workers": 1, "drivers": 1, "wave": 500}},
)  # fmt: skip
def network(stage):
    rules = (
        Rule(Hold(10.0, into_next=True), api="EndTxn", chance=0.05),
        Rule(Swallow(0.3), api=("EndTxn", "Produce"), chance=0.03),
        Rule(Reset(), api=("EndTxn", "Produce", "InitProducerId"), chance=0.03),
        Rule(BlackHole(1.0), api="AddPartitionsToTxn", chance=0.02),
        Rule(Delay(0.0, 0.3), api=("EndTxn", "InitProducerId"), chance=0.1),
    )
    with FaultProxy(seed=stage.seed) as proxy, kafka.start(nodes=3, advertise=proxy.advertise) as cluster:
        shop = Shop(stage, cluster, direct=cluster.direct_servers)
        with proxy.during(*rules):
            inject_kills(shop, kinds=("worker", "driver"))
        shop.finish()
        counts = {name: number for name, number in proxy.counts.items() if "EndTxn" in name or "held" in name}
        stage.report(
            network_faults=proxy.faults, **{name.replace(" ", "_"): number for name, number in counts.items()}
        )


def play(stage, cluster, *, kinds):
    shop = Shop(stage, cluster)
    inject_kills(shop, kinds=kinds)
    shop.finish()


def spread(stage, count):
    """Return random moments of the replay as numbers of settled dead letters."""
    return sorted(stage.chance.sample(range(20, stage.size["dead_letters"] * 9 // 10), count))


def inject_kills(shop, *, kinds):
    worker, *others = kinds
    stage = shop.stage
    targets = [worker] * stage.size["workers"] + [
        stage.chance.choice(others) for _ in range(stage.size["drivers"])
    ]
    stage.chance.shuffle(targets)
    driver = shop.driver()
    for moment, target in zip(spread(stage, len(targets)), targets, strict=True):
        if not shop.until(moment, driver):
            break
        time.sleep(stage.chance.uniform(0, 1))
        driver = shop.kill(target, driver)


@scenario(
    "R5", "a broker restarts during a batch, the progress topic and an original topic are deleted, and dead letters of 5 MB",
    sizes={"full": {"dead_letters": 40_000, "wave": 2_000, "large": 8, "doomed": 2_000},
           "short": {"dead_letters": 5_000, "wave": 500, "large": 4, "doomed": 500}},
)  # fmt: skip
def topics_deleted(stage):
    cluster = stage.kafka(3)
    shop = FaultyShop(stage, cluster)
    driver = shop.driver()
    shop.until(shop.total // 5, driver)
    cluster.kill(1)
    time.sleep(stage.chance.uniform(0.5, 3))
    cluster.start_node(1)
    shop.until(shop.total // 2, driver)
    cluster.delete_topic(shop.doomed)
    shop.until(shop.total * 3 // 4, driver)
    cluster.delete_topic(shop.progress)
    shop.finish()
