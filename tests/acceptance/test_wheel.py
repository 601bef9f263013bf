"""Test the contents of the wheel, and run unit tests against it in an environment without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from producer_core import __version__
from tests.support import ROOT

DIST = f"producer_core-{__version__}.dist-info"

QUICK = """
alerts/test_health
cli/test_options
delivery/dedup/test_deduplicator
delivery/test_engine
delivery/test_retry
dlq/test_memory_queue
dlq/test_spill_file
metrics/test_histogram
store/test_migrate
store/test_queries
store/test_store
test_config
test_messages
""".split()  # noqa: SIM905
"""One of each kind: values, threads, DuckDB with its SQL files, and the command line."""


def run(*command, cwd, **more):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        **more,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with hatchling. It is installed with the tests, so the build needs no network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return the Python of a new environment with the wheel; the other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--offline",
        "--no-deps",
        "--python",
        python,
        wheel,
        cwd=folder,
    )
    own = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    # a .pth file adds the packages of a path but ignores the .pth files there, so the linked checkout is not importable
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_contains_every_file_of_the_packages(files):
    for folder in (ROOT / "producer_core", ROOT / "producer_core" / "dashboard"):
        beside = {
            str(file.relative_to(ROOT))
            for file in folder.rglob("*")
            if file.is_file() and file.suffix not in (".pyc", ".pyo")
        }
        assert beside - set(files) == set()
    assert "producer_core/py.typed" in files
    assert any(name.endswith(".sql") for name in files)


def test_the_wheel_contains_no_other_files(files):
    assert {name.split("/")[0] for name in files} == {
        "producer_core",
        DIST,
    }


def test_the_wheel_has_the_native_core_if_the_build_found_a_compiler(wheel, files, installed, tmp_path):
    compiled = "producer_core/native/core.so" in files
    assert compiled == (not wheel.name.endswith("-none-any.whl"))
    code = "from producer_core.native.library import unavailable_reason; print(unavailable_reason())"
    assert (run(installed, "-c", code, cwd=tmp_path).strip() == "None") == compiled


def test_the_wheel_has_complete_metadata(files):
    about = Parser().parsestr(files[f"{DIST}/METADATA"].decode())
    assert (about["Name"], about["License-Expression"], about["Requires-Python"]) == (
        "producer-core",
        "Apache-2.0",
        ">=3.11",
    )
    assert f"{DIST}/licenses/LICENSE" in files
    assert about.get_payload().startswith("# producer_core")
    assert {
        "redis",
        "dashboard",
        "oidc",
        "notebook",
        "simulate",
        "broker",
        "spark",
        "prometheus",
        "otel",
        "schemas",
        "run",
        "all",
    } == set(about.get_all("Provides-Extra"))


def test_the_wheel_declares_its_command_and_entry_points(files):
    text = files[f"{DIST}/entry_points.txt"].decode()
    assert "producer-core = producer_core.cli:main" in text
    assert "[producer_core.dashboard]" in text
    for line in text.splitlines():
        if " = producer_core." in line:
            module = line.partition(" = ")[2].partition(":")[0].replace(".", "/")
            assert {f"{module}.py", f"{module}/__init__.py"} & set(files), line


def test_the_installed_wheel_is_imported_and_its_command_runs(installed, tmp_path):
    where = run(
        installed,
        "-c",
        "import producer_core, producer_core.dashboard as dashboard; print(producer_core.__file__, dashboard.__file__)",
        cwd=tmp_path,
    )
    assert str(ROOT / "producer_core") not in where
    assert str(ROOT / "dashboard") not in where
    assert __version__ in run(installed.parent / "producer-core", "--version", cwd=tmp_path)
    assert "POLICY_VIOLATION" in run(installed.parent / "producer-core", "explain", "44", cwd=tmp_path)


def test_the_unit_tests_pass_against_the_installed_wheel(installed, tmp_path):
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    chosen = [f"tests/unit/{name}.py" for name in QUICK]
    output = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, cwd=tmp_path)
    assert " passed" in output
    assert "failed" not in output
