"""The Java runtime: from JAVA_HOME or PATH, version 17 or newer."""

from __future__ import annotations

import pytest

from producer_core.brokers.java import find_java
from producer_core.errors import MissingTool


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that makes a folder with a `java` that prints this text; PATH has no Java."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def java(name, text):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        program.chmod(0o755)
        return program

    return java


def test_java_home_takes_precedence_over_the_path(install, monkeypatch):
    home, path = install("home", 'openjdk version "21.0.2"'), install("path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(path.parent))
    assert (find_java().program, find_java().version) == (str(path), 17)

    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    assert (find_java().program, find_java().version) == (str(home), 21)


def test_an_old_java_in_java_home_is_skipped(install, monkeypatch):
    home, path = install("home", 'java version "1.8.0_402"'), install("path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    monkeypatch.setenv("PATH", str(path.parent))

    assert find_java().program == str(path)


def test_the_error_names_each_java_that_was_found(install, monkeypatch):
    home = install("home", 'java version "1.8.0_402"')
    other = install("path", "no such thing")
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    monkeypatch.setenv("PATH", str(other.parent))

    with pytest.raises(MissingTool, match="Spark needs Java 17 or newer") as caught:
        find_java("Spark")

    assert f"{home} is version 8; {other} is of an unknown version" in str(caught.value)


def test_the_error_reports_that_no_java_was_found(install):
    with pytest.raises(MissingTool, match="none was found"):
        find_java()
