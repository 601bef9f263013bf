"""The notebook: executed by a real kernel, exported without script, and alive in a real JupyterLab."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from tests.support import eventually

pytestmark = pytest.mark.jupyter

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
TOKEN = "quickstart-test"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture
def jupyter(tmp_path):
    """The environment of a Jupyter that touches nothing of the user's."""
    folders = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "IPYTHONDIR",
        "XDG_STATE_HOME",
    )
    return {**os.environ, **{name: str(tmp_path / name.lower()) for name in folders}}


def nbconvert(environment, target, *arguments):
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "nbconvert",
        "--execute",
        str(NOTEBOOK),
        "--output-dir",
        str(target),
    ]
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr


def test_the_notebook_in_git_has_no_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


def test_every_cell_runs_in_a_real_kernel_and_the_export_shows_the_numbers(jupyter, tmp_path):
    nbconvert(jupyter, tmp_path, "--to", "notebook", "--output", "run.ipynb")
    run = (tmp_path / "run.ipynb").read_text()
    outputs = [json.dumps(cell.get("outputs")) for cell in json.loads(run)["cells"]]

    assert "2000 acknowledged" in run
    assert "POLICY_VIOLATION - rejected" in run
    assert "40 replayed, 0 left" in run
    assert "CloseReport(acknowledged=2040, dead=40, journaled=0, lost=0)" in run
    assert any("pc-static" in output and "dead letters<br><b>40</b>" in output for output in outputs)
    assert sum(map(len, outputs)) < 100_000


@pytest.fixture
def lab(jupyter, tmp_path):
    """A JupyterLab on loopback with a copy of the notebook: its address."""
    shutil.copy(NOTEBOOK, tmp_path / "q.ipynb")
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = [
        f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={tmp_path}",
        "--ServerApp.open_browser=False", "--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=0",
    ]  # fmt: skip
    command = [sys.executable, "-m", "jupyter", "lab", "--allow-root", *settings]
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=jupyter, stdout=log, stderr=log, start_new_session=True)
    try:
        eventually(lambda: server.poll() is None and answers(port), timeout=60)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answers(port):
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=2) as answer:
            return answer.status == 200
    return False


@contextlib.contextmanager
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=chromium,
            headless=True,
            args=ARGUMENTS,
            viewport={"width": 1280, "height": 1000},
        )
        try:
            yield context.pages[0]
        finally:
            context.close()


def test_the_widget_lives_in_jupyterlab_and_replays_with_a_second_click(lab, chromium, tmp_path):
    stop_before_the_replay(tmp_path / "q.ipynb")
    with browser(chromium) as page:
        page.set_default_timeout(60_000)
        elsewhere = []
        page.on("request", lambda asked: elsewhere.append(asked.url) if outside(asked.url) else None)
        page.goto(f"{lab}/lab/tree/q.ipynb?token={TOKEN}&reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        page.wait_for_selector(
            ".jp-Notebook-ExecutionIndicator[data-status=idle]", state="attached", timeout=60_000
        )
        page.locator(".jp-Notebook .jp-CodeCell").first.click()
        with contextlib.suppress(Exception):
            page.locator(".jp-Dialog button.jp-mod-accept").click(timeout=3_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()

        page.wait_for_selector(".pc-monitor .pc-sentence", timeout=120_000)
        button = page.locator(".pc-monitor button").first
        eventually(lambda: "Replay 40" in button.inner_text(), timeout=60)
        before = page.locator(".pc-monitor .pc-age").inner_text()
        eventually(lambda: page.locator(".pc-monitor .pc-age").inner_text() != before, timeout=60)
        eventually(lambda: button.is_enabled(), timeout=60)
        assert "sure?" in button.evaluate("button => { button.click(); return button.textContent }")
        eventually(lambda: surely_replayed(page, button), timeout=120, every=0.2)
        page.screenshot(path=str(tmp_path / "lab.png"))

    assert elsewhere == []


def surely_replayed(page, button):
    """Clicks while nothing is under way: the question is taken back after seconds, and a busy kernel does nothing."""
    said = page.locator(".pc-monitor .pc-said").inner_text()
    if not re.search("Asking|Replay(ing|ed)", said) and button.is_enabled():
        button.click()
    return "Replayed 40 of 40" in said


def stop_before_the_replay(path):
    """The cells up to the monitor, and the broker accepting again, so that the widget's own button does the rest."""
    notebook = json.loads(path.read_text())
    shown = next(
        place
        for place, cell in enumerate(notebook["cells"])
        if "producer.monitor()" in "".join(cell["source"])
    )
    accept = {**notebook["cells"][shown], "id": "accept", "source": 'broker.accept("payments")'}
    notebook["cells"] = [*notebook["cells"][: shown + 1], accept]
    path.write_text(json.dumps(notebook))


def outside(url):
    return not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:|about:", url)
