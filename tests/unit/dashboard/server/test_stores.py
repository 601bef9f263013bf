"""Test the messages about a store that cannot be opened."""

from __future__ import annotations

from producer_core.dashboard.server.stores import store_problem
from producer_core.errors import StoreLocked, StoreUnavailable


def test_a_missing_store_is_not_an_error_and_the_message_explains_how_to_create_it(path):
    tone, text = store_problem(path, StoreUnavailable("There is no store."))

    assert tone == "quiet"
    assert f"There is no store at {path} yet." in text and f"--store {path}" in text


def test_a_store_that_exists_but_cannot_be_read_is_an_error(path):
    path.write_bytes(b"not a database")

    assert store_problem(path, StoreUnavailable("It is damaged.")) == ("bad", "It is damaged.")
    assert store_problem(path, StoreLocked("Another process holds it."))[0] == "bad"
