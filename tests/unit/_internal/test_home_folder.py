"""Paths with `~` have a place also where there is no home directory."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from producer_core._internal.home_folder import expand_user
from producer_core.store import default_path


@pytest.fixture
def homeless(monkeypatch):
    """Run without HOME under a user id that has no entry in /etc/passwd."""

    def missing(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", missing)


def test_a_home_directory_is_used(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert expand_user("~/x") == Path("/home/ada/x")
    assert expand_user("/data/x") == Path("/data/x")


def test_without_a_home_directory_it_is_the_root(homeless):
    assert expand_user("~/.config/x") == Path("/.config/x")
    assert expand_user("~no-such-user/x") == Path("~no-such-user/x")
    assert expand_user("data/x") == Path("data/x")


def test_the_default_store_is_named_without_a_home_directory(homeless, monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_path() == Path("/.local/state/producer-core/store.duckdb")
