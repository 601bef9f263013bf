"""Spark masters: accepted, refused, or checked before Spark starts."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from producer_core.errors import ConfigError, PipelineError
from producer_core.pipeline import spark_master
from producer_core.pipeline.spark_errors import spark_error


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[2,4]",
        "local[*, 4]",
        "local-cluster[2,1,1024]",
        "yarn",
        "k8s://h:1",
    ],
)
def test_a_valid_master_is_accepted(master):
    spark_master.check_master(master)


@pytest.mark.parametrize(
    "master",
    ["lokal[2]", "local[0]", "local[two]", "spark:/host:7077", "spark://host", "http://host:7077", ""],
)
def test_an_invalid_master_is_rejected_with_an_example(master):
    with pytest.raises(ConfigError, match="is not a Spark master"):
        spark_master.check_master(master)


def test_a_master_that_refuses_connections_fails_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        address = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PipelineError, match="No Spark master responded at spark://127"):
            spark_master.check_master(address)


@contextmanager
def listening(*answers):
    """Listen at an address that answers each connection's request with the next of `answers` and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            for reply in answers:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1_000)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(5)


_BODY = b"\0\0\0\x14/files/producer-core" + b"\0\0\0\x2cStream '/files/producer-core' was not found."
NOT_FOUND = (9 + len(_BODY)).to_bytes(8, "big") + b"\x08" + _BODY  # the response from a Spark 4.0 master


def test_one_reachable_master_of_several_is_enough():
    with listening(NOT_FOUND) as address, socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        spark_master.check_master(f"spark://127.0.0.1:{refusing.getsockname()[1]},{address}")


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", NOT_FOUND[:5]])
def test_a_process_that_is_not_spark_fails_the_check_at_once(reply):
    with listening(reply, b"") as address, pytest.raises(PipelineError, match="does not speak Spark"):
        spark_master.check_master(f"spark://{address}")


@pytest.mark.slow
def test_a_silent_process_fails_the_check_within_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(PipelineError, match=r"sent nothing within 0\.2 s"):
            spark_master.check_master(f"spark://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)


def test_a_master_that_never_accepts_the_job_has_its_own_error():
    stopped = RuntimeError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.")
    gone, full = spark_error(stopped), PipelineError("A disk is full.")
    assert "did not accept this job" in str(spark_master.master_start_error("spark://h:8080", gone))
    assert spark_master.master_start_error("local[2,4]", gone) is gone
    assert spark_master.master_start_error("spark://h:8080", full) is full


@pytest.mark.parametrize(
    ("master", "count"),
    [("local[3,4]", 3), ("local", 1), ("local-cluster[2,3,1024]", 6), ("spark://h:1", None)],
)
def test_the_number_of_concurrent_tasks_depends_on_the_master(master, count):
    assert spark_master.workers(master) == count


def test_the_default_master_allows_four_tries_per_task():
    assert spark_master.default_master() == f"local[{spark_master.cores()},4]"
