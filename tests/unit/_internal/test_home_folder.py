"""Paths with `~` have a place also where there is no home directory."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from dashboard.server import command
from producer_core._internal.home_folder import expand_user
from producer_core.brokers import detached, maven
from producer_core.errors import ConfigError
from producer_core.pipeline import connector
from producer_core.simulate.target_cluster import store_path
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


def test_the_folders_of_brokers_jars_and_the_demo_are_named_without_a_home_directory(homeless, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert maven.cache_folder() == Path("/.cache/producer-core")
    assert store_path(None) == Path("/.local/state/producer-core/demo.duckdb")


def test_a_state_folder_that_cannot_be_created_is_an_error_with_the_variable_that_moves_it(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/no")
    for use in (detached.status, command.launch_folder):
        with pytest.raises(ConfigError, match=r"The folder /proc/no/producer-core/.*Set XDG_STATE_HOME"):
            use()


def test_a_cache_folder_that_cannot_be_created_is_an_error_with_the_variable_that_moves_it(monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/no")
    with pytest.raises(ConfigError, match=r"The folder /proc/no/producer-core/spark-.*Set XDG_CACHE_HOME"):
        connector.folder()
