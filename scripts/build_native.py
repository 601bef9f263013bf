"""Compile the native core (producer_core/native/core.c): as a build hook of the wheel, and as a command for a checkout.

    python scripts/build_native.py                      beside the source
    python scripts/build_native.py /tmp/core.so -fsanitize=address

Compilers are tried in this order: $CC, cc, gcc, clang, and the one of the `ziglang` package. Without a working compiler
nothing fails: the wheel is built without the core, and everything runs in Python.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a command, in an environment without hatchling
    BuildHookInterface = object  # type: ignore[assignment,misc]

_FOLDER = "producer_core/native"
_FLAGS = ("-std=c11", "-O2", "-g0", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden")
_TIMEOUT_S = 300  # zig compiles parts of its own runtime at the first use


class NativeCoreHook(BuildHookInterface):  # type: ignore[misc,valid-type]
    """Add the compiled core to the wheel. An editable installation gets it in the source folder."""

    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        source = Path(self.root, _FOLDER, "core.c")
        if version == "editable":
            compile_in_place(source)
            return
        self._folder = Path(tempfile.mkdtemp())
        built = self._folder / "core.so"
        if compile_core(source, built):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
            build_data["force_include"][str(built)] = f"{_FOLDER}/core.so"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def compile_in_place(source: Path) -> Path | None:
    """Compile the core beside its source, if it is missing or older. Return its path, or None without a compiler.

    The file is replaced, never rewritten, because a running process may have it loaded.
    """
    target = source.with_name("core.so")
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    new = target.with_name(f".core-{os.getpid()}.so")
    try:
        if not compile_core(source, new):
            return None
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return target


def compile_core(source: Path, target: Path, flags: tuple[str, ...] = ()) -> bool:
    """Compile with the first compiler that succeeds. Return False if none does."""
    libraries = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-ldl", "-lpthread")
    for compiler in _compilers():
        command = [*compiler, *_FLAGS, *flags, "-o", str(target), str(source), *libraries]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"native core: {compiler[0]}: {error}", file=sys.stderr)
            continue
        if done.returncode == 0 and target.exists():
            return True
        print(f"native core: {shlex.join(command)} failed:\n{done.stderr}", file=sys.stderr)
    return False


def _compilers() -> Iterator[list[str]]:
    if os.name != "posix":
        return
    if named := os.environ.get("CC"):
        yield shlex.split(named)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            yield [name]
    if find_spec("ziglang") is not None:
        yield [sys.executable, "-m", "ziglang", "cc"]


def main() -> None:
    source = Path(__file__).resolve().parent.parent / _FOLDER / "core.c"
    if sys.argv[1:]:
        target, *flags = sys.argv[1:]
        sys.exit(not compile_core(source, Path(target), tuple(flags)))
    built = compile_in_place(source)
    print(f"The native core is {built}." if built else "No C compiler works: the native core is not built.")


if __name__ == "__main__":
    main()
