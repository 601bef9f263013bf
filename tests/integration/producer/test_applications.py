"""The documented FastAPI and Celery applications deliver each message once, and close their producers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core.brokers import embedded
from producer_core.brokers.ports import free_ports
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.support import ROOT, eventually

PAGE = (ROOT / "docs" / "how-to" / "applications.md").read_text()
(UVICORN,) = re.findall(r"```bash\nuvicorn (.*)\n```", PAGE)
ORDERS = 60
PARTITIONS = 4


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": PARTITIONS}) as started:
        yield started


@pytest.fixture
def start(tmp_path, broker):
    """Return a function that runs a documented application in a process with a store of its own."""

    def started(name, *command, **environment):
        _write(name, tmp_path)
        settings = {**_settings(tmp_path, broker), **environment}
        return _running(tmp_path, [sys.executable, "-m", *command], settings)

    return started


def _write(name, folder):
    (block,) = re.findall(rf"```python\n# {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    (folder / name).write_text(block)


def _settings(folder, broker):
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PRODUCER_CORE_STORE": str(folder / "store.duckdb"),
    }  # fmt: skip


@contextlib.contextmanager
def _running(folder, command, environment):
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            process.wait()


def on_topic(broker):
    """Return the number of records on the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "counts"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition("orders", number), timeout=30)
            for number in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)


def producers(tmp_path):
    """Return whether each producer of the application was closed."""
    store = Store.open(tmp_path / "store.duckdb", create=False)
    return [row["closed_at"] is not None for row in store.rows("producers", since=0)]


def test_fastapi_answers_with_the_position_of_each_order(tmp_path, broker, start):
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    with start("app.py", "uvicorn", *UVICORN.split(), "--port", str(port)) as server:
        eventually(lambda: server.poll() is None and _answers(address))

        def order(number):
            return httpx.post(f"{address}/orders", json={"customer": f"c{number % 7}"}, timeout=60)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(order, range(ORDERS)))
        for body in ('{"n": 1}', '{"customer": 5.5}', '{"customer": "a", "n": NaN}', "[]"):
            answer = httpx.post(f"{address}/orders", content=body, timeout=60)
            assert answer.status_code == 422, body
        broker.reject("orders", "POLICY_VIOLATION")
        refused = order(0)
    assert server.returncode in (0, -signal.SIGTERM), (tmp_path / "log").read_text()
    assert [answer.status_code for answer in answers] == [201] * ORDERS
    places = {(answer.json()["partition"], answer.json()["offset"]) for answer in answers}
    assert len(places) == ORDERS == on_topic(broker)
    assert refused.status_code == 502 and "olicy" in refused.json()["detail"]
    assert producers(tmp_path) == [True]


def test_fastapi_keeps_the_messages_of_open_requests_when_it_ends_during_an_outage(tmp_path, broker, start):
    """Regression: Uvicorn waited for the requests without a limit, so SIGKILL lost what they had sent."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"

    def order(number):
        with contextlib.suppress(httpx.TransportError):  # Uvicorn ends the connection
            httpx.post(f"{address}/orders", json={"customer": f"c{number}"}, timeout=120)

    with start("app.py", "uvicorn", *UVICORN.split(), "--port", str(port)) as server:
        eventually(lambda: server.poll() is None and _answers(address))
        order(0)
        broker.down()
        with ThreadPoolExecutor(3) as pool:
            list(map(pool.submit, [order] * 3, range(3)))
            store = Store.open(tmp_path / "store.duckdb", create=False)
            eventually(lambda: sum(row["pending"] for row in store.rows("producers", since=0)) == 3)
            server.send_signal(signal.SIGTERM)
            server.wait(60)  # the grace period of the page
    assert DeadLetters(store).count(DeadLetterFilter()) == 3
    assert producers(tmp_path) == [True]


def test_each_celery_worker_has_a_producer_and_closes_it(tmp_path, broker, start, monkeypatch):
    """The queue is a folder, so that no other service is needed."""
    folder = tmp_path / "queue"
    folder.mkdir()
    options = f"{{'data_folder_in': '{folder}', 'data_folder_out': '{folder}', 'control_folder': '{folder}/control'}}"
    arguments = ["worker", "--pool", "prefork", "--concurrency", "3", "--loglevel", "INFO"]
    (tmp_path / "send.py").write_text(
        f"import tasks\ntasks.app.conf.broker_transport_options = {options}\n"
        f"for number in range({ORDERS}):\n    tasks.publish_order.delay({{'customer': str(number)}})\n"
    )
    (tmp_path / "worker.py").write_text(
        f"import tasks\ntasks.app.conf.broker_transport_options = {options}\n"
        f"tasks.app.worker_main({arguments!r})\n"
    )
    url = {"CELERY_BROKER_URL": "filesystem://"}
    with start("tasks.py", "worker", **url) as worker:
        eventually(lambda: worker.poll() is not None or "ready" in (tmp_path / "log").read_text())
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            **url,
        }
        subprocess.run([sys.executable, "send.py"], cwd=tmp_path, env=environment, check=True, timeout=60)
        eventually(lambda: on_topic(broker) >= ORDERS, 120)
    assert worker.returncode == 0, (tmp_path / "log").read_text()
    assert on_topic(broker) == ORDERS
    closed = producers(tmp_path)
    assert len(closed) == 3 and all(closed)


def test_a_celery_task_fails_if_its_message_becomes_a_dead_letter(tmp_path, broker):
    """Regression: it succeeded."""
    _write("tasks.py", tmp_path)
    code = (
        "import tasks\n"
        "tasks.open_producer()\n"
        "for task_id in ('a', 'a'):\n"
        "    done = tasks.publish_order.apply(({'customer': 'c'},), task_id=task_id)\n"
        "    print(done.state, done.result)\n"
        "tasks.close_producer()\n"
    )

    def states():
        command = [sys.executable, "-c", code]
        options = {"capture_output": True, "text": True, "check": True, "timeout": 60}
        return subprocess.run(command, cwd=tmp_path, env=_settings(tmp_path, broker), **options).stdout

    assert states().splitlines() == ["SUCCESS None"] * 2
    assert on_topic(broker) == 1
    broker.reject("orders", "POLICY_VIOLATION")
    assert states().splitlines()[0] == "FAILURE Broker: Policy violation"


def _answers(address):
    try:
        return httpx.get(f"{address}/openapi.json").status_code == 200
    except httpx.TransportError:
        return False
