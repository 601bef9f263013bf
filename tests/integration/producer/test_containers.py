"""A producer runs like in a container: any user id, no home directory, no writable root, SIGTERM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT

UID = 23_456
"""A user id without an entry in /etc/passwd, which owns no folder."""
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
SERVICE = """
import os, signal, sys, time
from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
broker = embedded.start(topics={"orders": 2, "payments": 2})
broker.reject("payments", "POLICY_VIOLATION")
with ReliableKafkaProducer(
    broker.bootstrap_servers, cluster_id=broker.cluster_id, journal_dir=os.environ.get("JOURNAL_DIR")
) as producer:
    for number in range(100):
        producer.send_message("orders", {"number": number})
        producer.send_message("payments", {"number": number})
    producer.flush()
    print("flushed", flush=True)
    for number in range(10**9):
        producer.send_message("orders", {"number": number})
        time.sleep(0.001)
"""


@pytest.fixture
def volume():
    """A folder that the user may write to. pytest's own folders are private to the user of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="producer-core-volume-"))
    if os.geteuid() == 0:
        os.chown(folder, UID, 0)
    yield folder
    shutil.rmtree(folder)


def command(*arguments, **settings):
    """Return how the command is started as the user, who may read everything and write nowhere, without HOME."""
    user = (
        f"setpriv --reuid {UID} --regid {UID} --clear-groups "
        "--inh-caps +dac_read_search --ambient-caps +dac_read_search"
    )
    prefix = user.split() if os.geteuid() == 0 else []
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": "/nonexistent", **settings}
    return {
        "args": [*prefix, sys.executable, *arguments], "env": environment, "cwd": "/", "text": True,
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
    }  # fmt: skip


def serve(**settings):
    """Run the service until it has dead letters, stop it with SIGTERM, and return what it logged."""
    service = subprocess.Popen(**command("-c", SERVICE, **settings))
    try:
        line = service.stdout.readline()
        service.send_signal(signal.SIGTERM)
        _, errors = service.communicate(timeout=60)
    finally:
        service.kill()
        service.wait()
    assert line == "flushed\n", errors
    assert service.returncode == 0, errors
    assert "Traceback" not in errors
    return errors


def test_a_pod_without_a_writable_folder_sends_and_says_where_to_configure_a_store():
    errors = serve()
    assert "default store not available" in errors and "PRODUCER_CORE_STORE" in errors
    assert errors.count("default store not available") == 1
    assert "dead letters could not be stored: count=100" in errors


def test_a_pod_with_a_volume_keeps_everything_there_and_closes_on_sigterm(volume):
    settings = {"PRODUCER_CORE_STORE": f"{volume}/store.duckdb", "JOURNAL_DIR": f"{volume}/journal"}
    errors = serve(**settings)
    assert "not available" not in errors

    def run(*arguments):
        return subprocess.run(**_run(command("-m", "producer_core", *arguments, "--json", **settings)))

    groups = run("dlq", "groups")
    assert groups.returncode == 0, groups.stderr
    (group,) = json.loads(groups.stdout)["groups"] if "groups" in groups.stdout else json.loads(groups.stdout)
    assert (group["code"], group["count"]) == ("POLICY_VIOLATION", 100)
    totals = run("stats")
    assert totals.returncode == 0 and '"orders"' in totals.stdout, totals.stderr
    if os.geteuid() == 0:
        owned = [path for place in ("/tmp", "/var/tmp", "/dev/shm") for path in _owned(Path(place))]
        assert all(volume in (path, *path.parents) for path in owned), owned
        assert len(owned) > 3


def _run(started):
    return {key: value for key, value in started.items() if key not in ("stdout", "stderr")} | {
        "capture_output": True, "timeout": 60,
    }  # fmt: skip


def _owned(folder):
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            try:
                if path.lstat().st_uid == UID:
                    yield path
            except FileNotFoundError:
                continue


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_manifests_are_valid_and_run_without_privileges(path):
    import kubernetes_validate

    for resource in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
        pod = resource["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["terminationGracePeriodSeconds"] >= 30
        mounted = {mount["name"] for one in pod["containers"] for mount in one["volumeMounts"]}
        claims = [claim["metadata"]["name"] for claim in resource["spec"].get("volumeClaimTemplates", [])]
        assert mounted == {*claims, *(volume["name"] for volume in pod.get("volumes", []))}
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            places = [mount["mountPath"] for mount in container["volumeMounts"]]
            files = [
                value
                for entry in container.get("env", [])
                if (value := entry.get("value", "")).startswith("/")
            ]
            assert all(
                any(file.startswith(f"{place}/") or file == place for place in places) for file in files
            )


def test_the_commands_of_the_manifests_exist():
    from click.testing import CliRunner

    from producer_core.cli import main

    for path in MANIFESTS:
        for resource in yaml.safe_load_all(path.read_text()):
            for container in resource["spec"]["template"]["spec"]["containers"]:
                given = [*container.get("command", []), *container.get("args", [])]
                if not given:
                    continue
                help_text = CliRunner().invoke(
                    main, [*(name for name in given[1:3] if name[0] != "-"), "--help"]
                )
                assert help_text.exit_code == 0
                used = [name for name in given if name.startswith("-")]
                assert used and all(name in help_text.output for name in used)


def test_nothing_waits_for_a_home_directory():
    """Every command that reads settings of the user works without one."""
    for arguments in (["store", "path"], ["doctor", "--help"], ["explain", "MSG_SIZE_TOO_LARGE"]):
        done = subprocess.run(**_run(command("-m", "producer_core", *arguments)))
        assert "Traceback" not in done.stderr, done.stderr
