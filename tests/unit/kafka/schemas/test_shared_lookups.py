"""Callers of a name share one lookup and its failure, and wait for a limited time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from producer_core import SchemaUnavailable
from producer_core.errors import ProducerClosed
from producer_core.kafka.schemas import shared_lookups
from producer_core.kafka.schemas.shared_lookups import SharedLookups
from tests.support import eventually


class Registry:
    """Returns a value, or raises, once `released`. `calls` are the names that were asked for."""

    def __init__(self, *, held=False):
        self.calls, self.released, self.error = [], threading.Event(), None
        if not held:
            self.released.set()

    def load(self, name):
        self.calls.append(name)
        assert self.released.wait(30)
        if self.error is not None:
            raise self.error
        return f"schema of {name}"


@pytest.fixture
def opened():
    made = []

    def start(registry, *, wait=30.0):
        made.append((registry, SharedLookups(registry.load, wait=wait)))
        return made[-1][1]

    yield start
    for registry, lookups in made:
        registry.released.set()
        lookups.close()


def test_many_threads_share_one_lookup(opened):
    registry = Registry(held=True)
    lookups, results = opened(registry), []
    threads = [threading.Thread(target=lambda: results.append(lookups.get("orders"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    eventually(lambda: registry.calls)
    registry.released.set()
    for thread in threads:
        thread.join()
    assert results == ["schema of orders"] * 16
    assert registry.calls == ["orders"]
    assert lookups.get("orders") == "schema of orders" and registry.calls == ["orders"]


def test_a_failure_is_raised_again_without_another_request(opened, monkeypatch):
    registry = Registry()
    registry.error = ConnectionRefusedError("refused")
    lookups = opened(registry)
    errors = []
    for _ in range(3):
        with pytest.raises(SchemaUnavailable, match="did not respond: refused") as raised:
            lookups.get("orders")
        errors.append(raised.value)
    assert registry.calls == ["orders"]
    assert len(set(map(id, errors))) == 3, "threads that share an exception would change its traceback"
    with pytest.raises(SchemaUnavailable):
        lookups.get("payments")
    assert registry.calls == ["orders", "payments"]


def test_after_the_pause_the_registry_is_asked_again(opened, monkeypatch):
    monkeypatch.setattr(shared_lookups, "REMEMBERED", 0.0)
    registry = Registry()
    registry.error = TimeoutError("slow")
    lookups = opened(registry)
    with pytest.raises(SchemaUnavailable):
        lookups.get("orders")
    registry.error = None
    assert lookups.get("orders") == "schema of orders"


def test_the_wait_ends_while_the_lookup_goes_on_and_its_late_result_is_used(opened):
    registry = Registry(held=True)
    lookups = opened(registry, wait=0.05)
    for _ in range(3):
        with pytest.raises(SchemaUnavailable, match=r"did not respond within 0\.05 s"):
            lookups.get("orders")
    assert registry.calls == ["orders"]
    registry.released.set()
    eventually(lambda: "orders" in lookups.found)
    assert lookups.get("orders") == "schema of orders"


@pytest.mark.parametrize("error", [ValueError("Expecting value"), AttributeError("copy"), AssertionError()])
def test_an_unknown_error_of_a_lookup_is_a_failure_of_the_registry(opened, error):
    registry = Registry()
    registry.error = error
    with pytest.raises(SchemaUnavailable, match="response cannot be used"):
        opened(registry).get("orders")


def test_lookups_of_many_names_run_on_a_limited_number_of_threads(opened):
    registry = Registry(held=True)
    lookups = opened(registry)
    for number in range(100):
        lookups.start(f"t{number}")
    eventually(lambda: len(registry.calls) >= 16)
    assert len(registry.calls) == 16
    registry.released.set()
    assert lookups.get("t99") == "schema of t99"


def test_close_ends_every_wait(opened):
    registry = Registry(held=True)
    lookups, errors = opened(registry), []

    def wait():
        with pytest.raises(ProducerClosed) as raised:
            lookups.get("orders")
        errors.append(raised.value)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: registry.calls)
    lookups.close()
    for thread in threads:
        thread.join(30)
    assert len(errors) == 3
    with pytest.raises(ProducerClosed):
        lookups.get("payments")


def test_a_coroutine_that_is_cancelled_leaves_the_lookup_to_the_others(opened):
    registry = Registry(held=True)
    lookups = opened(registry)

    async def cancel_one():
        first, second = (asyncio.create_task(lookups.wait_for("orders")) for _ in range(2))
        while not registry.calls:
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        registry.released.set()
        await second

    asyncio.run(cancel_one())
    assert lookups.found == {"orders": "schema of orders"} and registry.calls == ["orders"]


def test_a_refresh_replaces_the_value_and_nothing_waits_for_it(opened):
    registry = Registry()
    lookups = opened(registry)
    lookups.get("orders")
    registry.released.clear()
    for _ in range(3):
        lookups.refresh("orders")
    eventually(lambda: len(registry.calls) == 2)
    assert lookups.get("orders") == "schema of orders"
    registry.released.set()
    eventually(lambda: not lookups._running)
    assert registry.calls == ["orders", "orders"]
