"""Where the native core is refused, and the sentence that says why."""

from __future__ import annotations

import sys

import pytest

from producer_core.diagnostics.doctor.machine_checks import check_core
from producer_core.native import library
from producer_core.native.library import CoreUnavailable, unavailable_reason
from tests.fixtures.native_core import require_core


@pytest.fixture(autouse=True)
def loaded_anew():
    library.core_library.cache_clear()
    yield
    library.core_library.cache_clear()


def test_the_doctor_says_that_the_core_is_installed():
    require_core()
    assert (check_core().level, check_core().text) == (
        "ok", 'The native core is installed; core="native" uses it.'
    )  # fmt: skip


def test_without_a_build_everything_runs_in_python(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "CORE_PATH", tmp_path / "core.so")
    reason = "It was not built: the installation found no C compiler."
    assert unavailable_reason() == reason
    assert (check_core().level, check_core().text.endswith(reason)) == ("ok", True)


def test_a_damaged_build_is_refused(monkeypatch, tmp_path):
    (tmp_path / "core.so").write_bytes(b"not a library")
    monkeypatch.setattr(library, "CORE_PATH", tmp_path / "core.so")
    assert "cannot be loaded" in unavailable_reason()


def test_another_librdkafka_is_refused(monkeypatch):
    require_core()
    library.core_library.cache_clear()
    monkeypatch.setattr(library, "KNOWN_LIBRDKAFKA", frozenset({(2, 99)}))
    assert unavailable_reason().startswith("It does not know librdkafka 2.")


def test_a_library_without_the_functions_is_refused(monkeypatch):
    require_core()
    library.core_library.cache_clear()
    monkeypatch.setattr(library, "library_path", lambda: "libc.so.6")
    assert "lacks a function" in unavailable_reason()


@pytest.mark.parametrize(
    ("change", "value"),
    [("implementation", "pypy"), ("_is_gil_enabled", lambda: False)],
    ids=["pypy", "no GIL"],
)
def test_an_interpreter_without_the_lock_is_refused(monkeypatch, change, value):
    if change == "implementation":
        monkeypatch.setattr(sys.implementation, "name", value)
    else:
        monkeypatch.setattr(sys, change, value, raising=False)
    with pytest.raises(CoreUnavailable, match="global interpreter lock"):
        library.core_library()
