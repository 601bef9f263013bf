"""Start the servers that are measured: the dashboard on a store with a live producer, its peer, and JupyterLab."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.dashboard.server import command as server_command
from producer_core.store import Store
from scripts import shop_history
from scripts.browser import answers

RATE = 100.0
"""Messages per second of the live producer."""
TOKEN = "benchmark"
PEER = """
import plotly.graph_objects as go
import streamlit as st

st.set_page_config(page_title="peer", layout="wide")
st.plotly_chart(go.Figure(go.Scatter(y=[1, 3, 2])))
"""
"""A minimal Streamlit page with a chart: no store, no text, one line through three points."""


@contextlib.contextmanager
def shop(folder: Path) -> Iterator[Path]:
    """Create a store with a day of history, and run a producer on it; the broker rejects its payments."""
    path, ended = folder / "shop.duckdb", threading.Event()
    shop_history.write(Store.open(path), now=time.time())
    with embedded.start(topics={"orders": 4, "payments": 2}) as broker:
        producer = ReliableKafkaProducer(broker.bootstrap_servers, store=path, cluster_id=broker.cluster_id)
        broker.reject("payments", "POLICY_VIOLATION")

        def send() -> None:
            number = 0
            while not ended.wait(1 / RATE):
                number += 1
                producer.send_message("payments" if number % 50 == 0 else "orders", {"n": number})

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield path
        finally:
            ended.set()
            sending.join()
            producer.close(10)


@contextlib.contextmanager
def dashboard(store: Path) -> Iterator[str]:
    port = server_command.free_port(8860)
    with _streamlit(server_command.command(store, port), port) as address:
        yield address


@contextlib.contextmanager
def peer(folder: Path) -> Iterator[str]:
    """Run a separate Streamlit app with one chart and the same settings."""
    script, port = folder / "peer.py", server_command.free_port(8880)
    script.write_text(PEER)
    flags = [f"--{name}={value}" for name, value in server_command.OPTIONS.items()]
    command = [
        sys.executable, "-m", "streamlit", "run", str(script), *flags, f"--server.address={server_command.HOST}",
        f"--server.port={port}",
    ]  # fmt: skip
    with _streamlit(command, port) as address:
        yield address


@contextlib.contextmanager
def _streamlit(command: Sequence[str], port: int) -> Iterator[str]:
    with process(command, dict(os.environ), lambda: answers(f"http://127.0.0.1:{port}/_stcore/health")):
        yield f"http://127.0.0.1:{port}/"


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[str]:
    """Run JupyterLab on the loopback address, isolated from the user's configuration."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {
        **os.environ,
        **{name: str(folder / name.lower()) for name in own},
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    options = {
        "ServerApp.port": port, "ServerApp.ip": "127.0.0.1", "ServerApp.port_retries": 0,
        "ServerApp.open_browser": False, "ServerApp.root_dir": folder, "IdentityProvider.token": TOKEN,
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyter", "lab", "--allow-root", *(f"--{name}={value}" for name, value in options.items()),
    ]  # fmt: skip
    with process(command, environment, lambda: answers(f"http://127.0.0.1:{port}/api")):
        yield f"http://127.0.0.1:{port}"


def cells(*sources: str) -> str:
    """Return a notebook with these code cells as JSON."""
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{place}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for place, source in enumerate(sources)
    ]  # fmt: skip
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


@contextlib.contextmanager
def process(command: Sequence[str], environment: dict[str, str], ready: Callable[[], bool]) -> Iterator[None]:
    """Run a command until the block ends; wait up to 90 seconds until it is ready."""
    running = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 90
        while not ready():
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[2]} did not start")
            time.sleep(0.1)
        yield
    finally:
        running.terminate()
        try:
            running.wait(15)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
