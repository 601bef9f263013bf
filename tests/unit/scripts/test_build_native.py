"""The build of the native core: with and without a working compiler."""

from __future__ import annotations

import os
import time

import pytest

from scripts import build_native
from scripts.build_native import NativeCoreHook, compile_core, compile_in_place
from tests.fixtures.native_core import require_core
from tests.support import ROOT

SOURCE = ROOT / "producer_core/native/core.c"


@pytest.fixture
def hook(tmp_path):
    """Return a hook for the wheel, and the data that it changes."""
    hook = NativeCoreHook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    yield hook, {"pure_python": True, "force_include": {}, "tag": None}
    hook.finalize("standard", {}, "")
    assert not hook._folder.exists()


def no_compiler(monkeypatch, *compilers):
    monkeypatch.setattr(build_native, "_compilers", lambda: iter(compilers))


def test_without_a_compiler_the_wheel_is_pure(monkeypatch, hook):
    no_compiler(monkeypatch)
    hook, data = hook
    hook.initialize("standard", data)
    assert data == {"pure_python": True, "force_include": {}, "tag": None}


def test_a_compiler_that_fails_or_hangs_or_is_missing_does_not_fail_the_build(monkeypatch, hook, capfd):
    monkeypatch.setattr(build_native, "_TIMEOUT_S", 0.2)
    no_compiler(monkeypatch, ["false"], ["/nonexistent/cc"], ["sh", "-c", "exec sleep 60"], ["true"])
    hook, data = hook
    hook.initialize("standard", data)
    assert data["pure_python"]
    errors = capfd.readouterr().err
    assert errors.count("native core:") == 4


def test_with_a_compiler_the_wheel_has_the_core_and_a_platform(hook):
    require_core()
    hook, data = hook
    hook.initialize("standard", data)
    ((built, inside),) = data["force_include"].items()
    assert inside == "producer_core/native/core.so"
    with open(built, "rb") as file:
        assert file.read(4) in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
    assert data["tag"].startswith("py3-none-")
    assert "any" not in data["tag"]


def test_an_editable_installation_compiles_a_missing_or_older_core_only(monkeypatch, tmp_path):
    source = tmp_path / "core.c"
    source.write_text("int core;")
    calls = []
    monkeypatch.setattr(
        build_native, "compile_core", lambda source, target: calls.append(target) or target.write_text("x")
    )
    assert compile_in_place(source) == tmp_path / "core.so"
    assert compile_in_place(source) == tmp_path / "core.so"
    assert len(calls) == 1
    os.utime(source, (time.time() + 10, time.time() + 10))
    compile_in_place(source)
    assert len(calls) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["core.c", "core.so"]


def test_the_compiler_of_the_environment_comes_first(monkeypatch):
    monkeypatch.setenv("CC", "my-cc -m64")
    assert next(build_native._compilers()) == ["my-cc", "-m64"]


@pytest.mark.slow
def test_the_core_compiles_without_warnings(tmp_path):
    require_core()
    assert compile_core(SOURCE, tmp_path / "core.so", ("-Wall", "-Wextra", "-Werror"))
