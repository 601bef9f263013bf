"""Start the services of the scenarios at their first use: brokers, and a standalone Spark on the loopback address."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import eventually


class Services:
    def __init__(self):
        self._stack = contextlib.ExitStack()
        self._kafka, self._standalone = {}, None

    def kafka(self, nodes=1):
        from producer_core.brokers import kafka

        if nodes not in self._kafka:
            self._kafka[nodes] = self._stack.enter_context(kafka.start(nodes=nodes))
        return self._kafka[nodes]

    def standalone(self):
        if self._standalone is None:
            self._standalone = self._stack.enter_context(standalone())
        return self._standalone

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()


@contextlib.contextmanager
def standalone(workers=2):
    """Start a standalone master with workers of one core each, all in separate processes; yield its address.

    `local[*]` runs everything in one JVM, which hides errors of serialization and paths.
    """
    import pyspark

    from producer_core.brokers.java import find_java

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="standalone-", ignore_cleanup_errors=True)
        )
        log = stack.enter_context(open(Path(home) / "log", "wb"))
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": home,
            "SPARK_LOCAL_DIRS": home, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(launcher.parents[1]),
            "JAVA_HOME": str(Path(find_java().program).resolve().parents[1]),
        }  # fmt: skip

        def start(name, *arguments):
            command = [str(launcher), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home
            )
            stack.callback(_end, process)

        port = free_port()
        start("master.Master", "--port", str(port), "--webui-port", str(free_port()))
        eventually(lambda: answers(port))
        address = f"spark://127.0.0.1:{port}"
        for number in range(workers):
            start(
                "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", f"{home}/{number}",
                "--webui-port", str(free_port()), address,
            )  # fmt: skip
        eventually(
            lambda: (Path(home) / "log").read_text(errors="replace").count("Registering worker") >= workers
        )
        yield address


def _end(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
