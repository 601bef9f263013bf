"""Checks before Spark starts, and the errors, settings and job rows afterwards; each error has a fix."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import certifi
import click
import pytest

from producer_core.brokers import maven
from producer_core.cli.pipeline.spark_options import SparkChoice
from producer_core.cli.pipeline.telemetry import _reasons as set_aside
from producer_core.config import client_config
from producer_core.errors import (
    BrokerError,
    BrokerUnreachable,
    CheckpointDamaged,
    ConfigError,
    MissingTool,
    PipelineError,
    StoreLocked,
)
from producer_core.metrics.telemetry import SCHEMA_VERSION
from producer_core.pipeline import checkpoint, connector, session, spark_master, telemetry
from producer_core.pipeline.job_status import JobStatus, track_job
from producer_core.pipeline.kafka_options import kafka_options
from producer_core.pipeline.session import _settings
from producer_core.pipeline.spark_errors import explained, root_cause, spark_error
from producer_core.store import Store
from tests.support import eventually
from tests.unit.pipeline.test_parquet_history import Query

# masters


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
        with pytest.raises(PipelineError, match="No Spark master answers at spark://127"):
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
NOT_FOUND = (9 + len(_BODY)).to_bytes(8, "big") + b"\x08" + _BODY  # the answer of a Spark 4.0 master


def test_one_of_several_masters_is_enough():
    with listening(NOT_FOUND) as address, socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        spark_master.check_master(f"spark://127.0.0.1:{refusing.getsockname()[1]},{address}")


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", NOT_FOUND[:5]])
def test_a_process_that_is_not_spark_fails_the_check_at_once(reply):
    with listening(reply, b"") as address, pytest.raises(PipelineError, match="does not speak Spark"):
        spark_master.check_master(f"spark://{address}")


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
def test_the_number_of_tasks_that_run_at_once(master, count):
    assert spark_master.workers(master) == count


def test_the_default_master_allows_four_tries_per_task():
    assert spark_master.default_master() == f"local[{spark_master.cores()},4]"


# errors of Spark

STACK = """An error occurred while calling o50.load.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Thing
Caused by: java.util.concurrent.ExecutionException: {cause}
\t... 60 more
Caused by: {cause}
\tat somewhere
"""


@pytest.mark.parametrize(
    ("cause", "kind", "text"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
         BrokerUnreachable, "stopped answering"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition.",
                  BrokerError, "no longer exists"),
        ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out of range", BrokerError, "Retention"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]", BrokerError,
         "Not authorized to access topics: [t]"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username", BrokerError,
         "Invalid username"),
        ("java.lang.IllegalStateException: batch 3 doesn't exist", CheckpointDamaged, "Move its folder"),
        ("java.lang.OutOfMemoryError: Java heap space", PipelineError, "--driver-memory"),
        ("java.io.IOException: No space left on device", PipelineError, "history"),
        ("ModuleNotFoundError: No module named 'pyarrow'", MissingTool, "'pyarrow'"),
        ("org.apache.spark.SparkException: Could not parse Master URL: 'lokal'", ConfigError, "lokal"),
        ("java.lang.NoSuchMethodError: 'void org.apache.X.y()'", MissingTool, "--jars"),
        ("org.apache.spark.SparkClassNotFoundException: Failed to find data source: kafka", MissingTool, "connector"),
    ],
)  # fmt: skip
def test_the_last_cause_becomes_the_message(cause, kind, text):
    found = spark_error(RuntimeError(STACK.format(cause=cause)))

    assert type(found) is kind
    assert text in str(found)
    assert "\n" not in str(found)


def test_a_producer_error_that_passed_through_spark_is_returned_unchanged():
    own = StoreLocked()
    outside = RuntimeError("the stream failed")
    outside.__cause__ = own
    assert spark_error(outside) is own


def test_an_unknown_error_is_summarised_by_its_root_cause():
    unknown = RuntimeError(STACK.format(cause="java.lang.Strange: a thing"))
    assert spark_error(unknown) is None
    assert explained(unknown) is None  # not from Spark's packages
    assert root_cause(unknown) == "java.lang.Strange: a thing"


class FromSpark(Exception):
    """Has the text of py4j's exceptions: the call, then its error."""

    __module__ = "py4j.protocol"

    def __str__(self):
        return "An error occurred while calling o78.start.\n: java.nio.file.AccessDeniedException: /artifacts\n\tat java.base/sun.nio"


def test_the_message_has_the_error_of_a_spark_call_and_not_the_call():
    assert str(explained(FromSpark())).startswith(
        "Spark failed: java.nio.file.AccessDeniedException: /artifacts. "
    )


# the checkpoint


def make_checkpoint(folder):
    spark = folder / "spark"
    for log in ("offsets", "commits", "sources/0"):
        (spark / log).mkdir(parents=True)
    (spark / "metadata").write_text('{"id":"1f2e"}')
    (spark / "sources/0/0").write_text('\0v1\n{"t":{"0":0}}')
    for number in range(12):
        (spark / "offsets" / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}')
        (spark / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return spark


def test_an_intact_checkpoint_and_a_new_one_pass(tmp_path):
    checkpoint.check_files(tmp_path)
    make_checkpoint(tmp_path)
    checkpoint.check_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("metadata", "{", "metadata is not JSON"),
        ("metadata", "{}", "names no query"),
        ("offsets/11", "", "offsets/11 is cut off"),
        ("offsets/11", "v1\n", "is cut off"),
        ("offsets/11", 'v1\n{"batchWatermarkMs":0}\n{"t":{"0":', "is not JSON"),
        ("commits/11", "\0\0\0\0", "is not Spark's"),
        ("commits/10", "v1\nnothing", "is not JSON"),
        ("sources/0/0", "\0", "is cut off"),
    ],
)
def test_a_damaged_checkpoint_is_reported_with_its_file(tmp_path, name, text, why):
    (make_checkpoint(tmp_path) / name).write_text(text)

    with pytest.raises(CheckpointDamaged, match=why) as raised:
        checkpoint.check_files(tmp_path)
    assert "not counted twice" in str(raised.value)


def test_a_checkpoint_without_its_metadata_is_damaged(tmp_path):
    (make_checkpoint(tmp_path) / "metadata").unlink()
    with pytest.raises(CheckpointDamaged, match="metadata is missing"):
        checkpoint.check_files(tmp_path)


def test_a_checkpoint_of_another_cluster_is_rejected(tmp_path):
    with checkpoint.locked(tmp_path, "one"):
        pass
    with pytest.raises(ConfigError, match="belongs to cluster one"), checkpoint.locked(tmp_path, "two"):
        pass
    with checkpoint.locked(tmp_path, "one"):
        pass


def test_a_re_created_topic_is_rejected(tmp_path):
    with checkpoint.locked(tmp_path, "c", {"one": "id-1"}), pytest.raises(ConfigError, match="re-created"):
        checkpoint.check_cluster(tmp_path, "c", {"one": "id-2"})
    with checkpoint.locked(tmp_path, "c", {"two": "id-3"}):
        checkpoint.check_cluster(tmp_path, "c", {"one": "id-1", "two": "id-3"})


@pytest.mark.parametrize("while_it_runs", [False, True])
def test_re_creating_a_topic_ends_a_running_job(tmp_path, monkeypatch, while_it_runs):
    monkeypatch.setattr(telemetry, "_MAINTENANCE", 0)
    answers = [{"one": "id-1"}, BrokerUnreachable(), {"one": "id-2"}] if while_it_runs else [{"one": "id-2"}]

    def ids():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    class Stream(telemetry._Stream):
        def _start(self, sink):
            return Query(False, False, False)

    source = telemetry.TelemetrySource(("one",), {}, "c", {"one": "id-1"})
    with checkpoint.locked(tmp_path, "c", source.topic_ids):
        stream = Stream(None, source, None, tmp_path, None, False, 1.0, print, time.time, ids)
        with pytest.raises(ConfigError, match="re-created"):
            stream.run_once(telemetry._Run(JobStatus(), lambda state: None, lambda: False))
    assert answers == []


def test_a_checkpoint_needs_a_store_that_merged_the_batches_it_counts_as_read(tmp_path):
    make_checkpoint(tmp_path)
    place = tmp_path / "s.duckdb"
    with pytest.raises(ConfigError, match="ahead of the store"):
        checkpoint.check_store(tmp_path, place, None)
    store = Store.open(place)
    with pytest.raises(ConfigError, match="ahead of the store"):
        checkpoint.check_store(tmp_path, place, store)
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO pipeline_progress VALUES ('1f2e', 12, 1.0)")

    # One more than Spark committed: the process was killed between the two commits.
    checkpoint.check_store(tmp_path, place, store)
    checkpoint.check_store(tmp_path / "new", place, None)


def test_a_checkpoint_is_used_by_one_job_at_a_time(tmp_path):
    with checkpoint.locked(tmp_path, "c"):
        with (
            pytest.raises(PipelineError, match="Another job uses the checkpoint"),
            checkpoint.locked(tmp_path, "c"),
        ):
            pass


def test_a_checkpoint_in_use_is_reported_before_the_brokers_are_asked(tmp_path):
    with (
        checkpoint.locked(tmp_path, "c"),
        pytest.raises(PipelineError, match="Another job uses the checkpoint"),
    ):
        telemetry.check(client_config("127.0.0.1:1"), ["t"], tmp_path)


def test_records_set_aside_for_one_reason_share_a_line():
    reasons = set_aside({None: 3, SCHEMA_VERSION: 2, SCHEMA_VERSION + 1: 1})

    assert list(reasons.values()) == [5, 1]


# settings


def options(**settings):
    return kafka_options(client_config("h:1", settings))


def test_a_password_is_passed_as_a_jaas_configuration():
    ca = Path(certifi.where())
    found = options(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="app",
        sasl_plain_password='a"b\\c', ssl_cafile=str(ca),
    )  # fmt: skip

    assert found["kafka.sasl.jaas.config"].endswith('required username="app" password="a\\"b\\\\c";')
    assert found["kafka.ssl.truststore.certificates"] == ca.read_text()
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.bootstrap.servers"] == "h:1"


def test_a_setting_that_javas_client_lacks_is_rejected():
    with pytest.raises(ConfigError, match=r"enable\.ssl\.certificate\.verification"):
        options(enable_ssl_certificate_verification=False)


def test_producer_and_socket_settings_are_ignored():
    assert options(linger_ms=50, socket_keepalive_enable=True) == {"kafka.bootstrap.servers": "h:1"}


# jobs


def test_a_command_that_handles_ctrl_c_itself_is_not_reported_as_interrupted(monkeypatch):
    monkeypatch.setattr(session, "open_session", lambda **_: SimpleNamespace(stop=lambda: None))

    def paused():
        with SparkChoice().session("reprocess"):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            raise click.exceptions.Exit(130)

    with pytest.raises(click.exceptions.Exit):
        paused()


def test_sparks_log_keeps_the_output_of_earlier_jobs(tmp_path, monkeypatch):
    log = tmp_path / "spark.log"

    def job(name):
        with session._stderr_to(log, name):
            os.write(2, f"{name} failed\n".encode())

    job("one")
    job("two")
    assert re.fullmatch(
        r"-- .* UTC, one, process \d+\none failed\n-- .* UTC, two, process \d+\ntwo failed\n", log.read_text()
    )

    monkeypatch.setattr(session, "_LOG_BYTES", 10)
    job("three")
    assert "two failed" in (tmp_path / "spark.log.1").read_text()
    assert log.read_text().endswith("three failed\n")
    assert log.stat().st_mode & 0o777 == 0o600


def job_rows(store):
    return store.rows("jobs")


def test_a_job_has_a_row_while_it_runs_and_afterwards(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with track_job(store, name="integrity orders", kind="integrity") as job:
        assert [row["state"] for row in job_rows(store)] == ["running"]
        job.records(total=200)
        job.fraction_done(0.5)
        job.message("half of it")
        job.details({"topic": "orders"})

    (row,) = job_rows(store)
    assert (row["state"], row["records_done"], row["records_total"]) == ("done", 100, 200)
    assert (row["message"], json.loads(row["details"])) == ("half of it", {"topic": "orders"})
    assert row["last_success_at"] is not None


def test_a_failed_job_has_a_reason_and_keeps_its_last_success(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with track_job(store, name="j", kind="telemetry", clock=lambda: 5.0):
        pass
    with pytest.raises(PipelineError), track_job(store, name="j", kind="telemetry", clock=lambda: 9.0):
        raise PipelineError("Spark ran out of memory.")

    (row,) = job_rows(store)
    assert (row["state"], row["message"]) == ("failed", "Spark ran out of memory.")
    assert (row["last_success_at"], row["ended_at"]) == (5.0, 9.0)


def test_the_row_of_a_failed_job_has_the_same_message_as_the_terminal(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with pytest.raises(FromSpark), track_job(store, name="j", kind="telemetry"):
        raise FromSpark

    (row,) = job_rows(store)
    assert row["message"] == str(explained(FromSpark()))


def test_an_interrupted_job_is_recorded_as_interrupted(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with pytest.raises(KeyboardInterrupt), track_job(store, name="j", kind="telemetry"):
        raise KeyboardInterrupt

    (row,) = job_rows(store)
    assert (row["state"], row["message"]) == ("failed", "Interrupted.")


def test_a_replaced_job_does_not_overwrite_its_successor(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    with track_job(store, name="j", kind="telemetry", clock=lambda: 5.0) as first:
        with track_job(store, name="j", kind="telemetry", clock=lambda: 6.0) as second:
            second.message("second")
        first.message("first")

    assert [row["message"] for row in job_rows(store)] == ["second"]


def test_a_heartbeat_statement_runs_with_each_heartbeat(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    store.execute("begin_audit", id="a", topic="t", cluster="c", started=1.0, isolation="x")
    with track_job(store, name="j", kind="integrity", clock=lambda: 5.0, every=0.01) as job:
        job.add_heartbeat("audit_seen", id="a")
        eventually(lambda: store.rows("one_audit", audit="a")[0]["seen_at"] == 5.0)


def test_an_unusable_store_never_fails_a_job(tmp_path):
    store = Store.open(tmp_path / "s.duckdb")
    (tmp_path / "s.duckdb").write_bytes(b"not a store" * 4096)
    with track_job(store, name="j", kind="telemetry") as job:
        job.message("continues")
    with track_job(None, name="j", kind="telemetry") as job:
        job.message("continues")


# the session


@pytest.mark.parametrize("verbose", [False, True])
def test_a_light_job_limits_its_jvm_to_the_first_compiler_tier(verbose, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def java(light):
        settings = _settings("local[2,4]", "1g", [], verbose=verbose, light=light)
        return settings.get("spark.driver.extraJavaOptions", "")

    assert "-XX:TieredStopAtLevel=1" in java(light=True)
    assert "-XX:TieredStopAtLevel=1" not in java(light=False)
    assert ("log4j2" in java(light=True)) is not verbose


# jars


def test_a_folder_of_jars_is_complete_until_one_is_removed(tmp_path):
    assert not maven.is_complete(tmp_path / "absent")
    (tmp_path / "jars.txt").write_text("a-1.jar\nb-2.jar")
    (tmp_path / "a-1.jar").touch()
    (tmp_path / "b-2.jar").touch()

    assert maven.is_complete(tmp_path)
    (tmp_path / "b-2.jar").unlink()
    assert not maven.is_complete(tmp_path)


def test_the_connector_needs_jgo_and_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jgo.env", None)
    with pytest.raises(MissingTool, match=r"producer-core\[spark\]"):
        connector.fetch_connector()
