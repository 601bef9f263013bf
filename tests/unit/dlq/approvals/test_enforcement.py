"""The level of a policy: enforced only if this user can write neither the store nor the policy."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from producer_core.diagnostics.doctor.approval_checks import check_approvals
from producer_core.dlq.approvals import enforcement as checked
from producer_core.dlq.approvals.enforcement import enforcement
from tests.fixtures.approvals import write_policy


@pytest.fixture
def place():
    """The file of a store in a folder that other users can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as outer:
        Path(outer).chmod(0o755)
        file = Path(outer) / "there" / "store.duckdb"
        file.parent.mkdir()
        file.write_bytes(b"")
        yield file


def as_another_user(then):
    """Return the result of `then` in a child process of a user that owns none of the files."""
    then()  # imports its modules, which the other user may not be allowed to read
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            os.write(writing, str(then()).encode())
        finally:
            os._exit(0)  # an exception must not continue the test run in this process
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def test_the_owner_of_the_store_is_only_advised(place):
    found = enforcement(place, "the store")
    assert found.level == "advisory"
    assert "without an approval" in found.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("mode", "folder", "level"),
    [(0o644, 0o755, "enforced"), (0o666, 0o755, "advisory"), (0o644, 0o777, "advisory")],
)
def test_for_another_user_it_depends_on_the_permission_to_write(place, monkeypatch, mode, folder, level):
    place.chmod(mode)
    place.parent.chmod(folder)
    monkeypatch.chdir(place.parent.parent)  # other users may not be allowed to enter the folders above
    file = place.relative_to(place.parent.parent)
    assert as_another_user(lambda: enforcement(file, "the store").level) == level


def test_doctor_says_advisory_with_the_rules_and_a_fix(store, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)
    (found,) = check_approvals(store.path)
    assert (found.check, found.level) == ("approvals", "warning")
    assert found.text.startswith("advisory: A second person approves replays of more than 2 records.")
    assert found.fix


def test_doctor_says_enforced_where_the_system_protects_the_store(store, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)
    monkeypatch.setattr(checked.os, "geteuid", lambda: 12345)
    monkeypatch.setattr(checked.os, "access", lambda *_: False)
    (found,) = check_approvals(store.path)
    assert (found.level, found.text[:9]) == ("ok", "enforced:")


def test_doctor_reports_a_mistake_in_the_policy_and_nothing_without_one(store, tmp_path, monkeypatch):
    assert list(check_approvals(store.path)) == []
    write_policy(monkeypatch, tmp_path, "[rolls]\n")
    (found,) = check_approvals(store.path)
    assert found.level == "problem"
    assert "did you mean roles?" in found.text
