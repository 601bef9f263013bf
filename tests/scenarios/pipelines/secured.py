"""T3: the jobs on a cluster with TLS, passwords and ACLs; librdkafka's settings are translated for the Java client."""

from __future__ import annotations

import time

from producer_core import ReliableKafkaProducer
from producer_core.brokers import kafka, secure
from producer_core.errors import BrokerError
from producer_core.kafka.acls import Permission
from producer_core.pipeline import audit, telemetry
from producer_core.pipeline.session import open_session
from producer_core.store import Store
from tests.scenarios.pipelines.scenario import scenario

TOPICS = ("orders", "telemetry")


@scenario(
    "T3", "telemetry and an audit of a cluster with TLS and passwords, as users with read permission only",
    sizes={"full": {"messages": 20_000}, "short": {"messages": 500}},
)  # fmt: skip
def signed_in(stage):
    count = stage.size["messages"]
    with kafka.start(secure=True, auto_create=False) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, partitions=2)
        send(cluster, stage.folder / "own.duckdb", count)
        secure.grant(cluster.direct_servers, "app2", [Permission("topic", topic, "READ") for topic in TOPICS])
        session = open_session(name="secured", driver_memory="1g")
        try:
            for user, mechanism in secure.USERS.items():
                if user != "admin":
                    run_jobs(stage, session, cluster, user, count)
                    stage.report(**{user: mechanism})
            run_with_wrong_password(stage, session, cluster)
        finally:
            session.stop()
    stage.report(messages=count)


def send(cluster, store, count):
    with ReliableKafkaProducer(
        cluster.bootstrap_servers, cluster.security.settings("app"), store=store, telemetry_topic="telemetry"
    ) as producer:
        for number in range(count):
            producer.send_message("orders", {"n": number})
        producer.flush(60)


def run_jobs(stage, session, cluster, user, count):
    """Merge the telemetry and run an audit as this user."""
    settings, servers = cluster.security.settings(user), cluster.bootstrap_servers
    store = Store.open(stage.folder / f"{user}.duckdb")
    telemetry.run(session, store, servers=servers, topics=["telemetry"], once=True, settings=settings)
    with store.borrow() as connection:
        found = connection.execute("SELECT sum(acknowledged) FROM statistics").fetchone()
    stage.equal(f"acknowledged, merged by {user}", found, (count,))
    report = audit(
        session,
        "orders",
        bootstrap_servers=servers,
        config=settings,
        ledger_topics=["telemetry"],
        store=store,
    )
    stage.equal(f"the audit by {user}", (report.clean, report.acknowledged), (True, count))
    store.close()


def run_with_wrong_password(stage, session, cluster):
    """Expect one error before Spark starts a query, without the password in its text and without a checkpoint."""
    store = Store.open(stage.folder / "refused.duckdb")
    settings = {**cluster.security.settings("app"), "sasl.password": "geheim"}
    began = time.monotonic()
    try:
        telemetry.run(
            session,
            store,
            servers=cluster.bootstrap_servers,
            topics=["telemetry"],
            once=True,
            settings=settings,
        )
        stage.problem("a wrong password was accepted")
    except BrokerError as error:
        stage.report(refused_in_seconds=round(time.monotonic() - began, 1))
        if "geheim" in str(error):
            stage.problem("the error message contains the password")
    if telemetry.default_checkpoint(store.path).exists():
        stage.problem("a checkpoint was created")
    store.close()
