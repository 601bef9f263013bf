"""The policy of a store: adopted from the file, kept when the file disappears, and never replaced from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_core._internal.identity import Identity
from producer_core.errors import ConfigError, NotPermitted
from producer_core.replay.operation import end_abandoned
from producer_core.roles.adopted_policy import adopt_policy, policy_of
from tests.fixtures.approvals import POLICY, write_policy

BY = {"who": "ada", "origin": "cli"}


def adopt(store):
    with store.borrow(write=True):
        return adopt_policy(store, **BY, now=5000.0)


def audited(store):
    return [row["outcome"] for row in store.rows("audit_latest", action="policy")]


def test_a_store_without_a_policy_has_none(store):
    assert adopt(store) is None
    assert store.rows("approval_policy") == []


def test_the_store_keeps_the_policy_of_the_first_file(store, tmp_path, monkeypatch):
    path = write_policy(monkeypatch, tmp_path)
    assert adopt(store).source == str(path)
    monkeypatch.delenv("PRODUCER_CORE_POLICY")
    assert adopt(store).replays_above == policy_of(store).replays_above == 2
    assert len(audited(store)) == 1


def test_a_changed_file_applies_and_is_audited(store, tmp_path, monkeypatch):
    path = write_policy(monkeypatch, tmp_path)
    adopt(store)
    path.write_text(POLICY.replace("replays_above = 2", "replays_above = 9000"))
    assert adopt(store).replays_above == 9000
    assert audited(store)[0].startswith(
        "changed: A second person approves replays of more than 9,000 records."
    )


def test_another_file_with_other_rules_is_refused(store, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)
    adopt(store)
    mine = write_policy(monkeypatch, tmp_path, "[roles]\n", name="mine.toml")
    with pytest.raises(ConfigError, match=f"and {mine} differs from it, so no replay can be started"):
        adopt(store)
    assert len(audited(store)) == 1


def test_a_file_that_moved_with_the_same_content_may_change_there(store, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)
    adopt(store)
    moved = write_policy(monkeypatch, tmp_path, name="moved.toml")
    adopt(store)
    moved.write_text(POLICY.replace("replays_above = 2", "replays_above = 7"))
    assert adopt(store).replays_above == 7


def test_a_named_file_that_disappears_admits_nothing(store, tmp_path, monkeypatch):
    path = write_policy(monkeypatch, tmp_path)
    adopt(store)
    path.unlink()
    with pytest.raises(
        ConfigError, match=r"cannot be read \(No such file or directory\), so no replay can be started"
    ):
        adopt(store)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux's /proc")
def test_an_unreadable_file_admits_nothing(store, monkeypatch):
    # Reading address 0 of a process fails for root too, whom a file's permissions do not stop.
    monkeypatch.setenv("PRODUCER_CORE_POLICY", "/proc/self/mem")
    with pytest.raises(ConfigError, match="cannot be read"):
        adopt(store)


def test_a_folder_in_place_of_the_file_admits_nothing(store, tmp_path, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_POLICY", str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        adopt(store)


def test_a_file_that_is_not_text_admits_nothing(store, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        adopt(store)


def test_the_default_path_is_in_the_configuration_folder(store, tmp_path, monkeypatch):
    folder = tmp_path / "config" / "producer-core"
    folder.mkdir(parents=True)
    (folder / "policy.toml").write_text(POLICY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PRODUCER_CORE_POLICY", raising=False)
    assert adopt(store).replays_above == 2


def test_a_runner_or_a_dashboard_adopts_the_file_before_the_first_replay(store, tmp_path, monkeypatch):
    path = write_policy(monkeypatch, tmp_path)
    end_abandoned(store, 5000.0)
    assert [row["path"] for row in store.rows("approval_policy")] == [str(path)]
    path.write_text("[rolls]\n")
    end_abandoned(store, 5001.0)  # replays are refused with the mistake, the sweep goes on
    assert len(audited(store)) == 1
    path.write_text(POLICY.replace("replays_above = 2", "replays_above = 3"))
    end_abandoned(store, 5002.0)
    assert len(audited(store)) == 2


STRICTER = POLICY.replace("replays_above = 2", "replays_above = 1")


def test_two_hosts_with_different_files_do_not_adopt_them_in_turns(store, tmp_path, monkeypatch):
    path = write_policy(monkeypatch, tmp_path)
    for second, text in enumerate((POLICY, STRICTER, POLICY, STRICTER, POLICY)):  # one path, two hosts
        path.write_text(text)
        end_abandoned(store, 5000.0 + second)
    assert len(audited(store)) == 2
    with pytest.raises(ConfigError, match="is an earlier policy of this store, so no replay can be started"):
        adopt(store)
    assert policy_of_another_host(store, monkeypatch).replays_above == 1


def policy_of_another_host(store, monkeypatch):
    """Return the policy for a process without a file."""
    monkeypatch.delenv("PRODUCER_CORE_POLICY")
    return policy_of(store)


def superseded(store, tmp_path, monkeypatch, later=STRICTER):
    """Return the path of a file whose text the store adopted and replaced."""
    path = write_policy(monkeypatch, tmp_path)
    adopt(store)
    path.write_text(later)
    adopt(store)
    path.write_text(POLICY)
    return path


def adopt_again(store, who):
    with store.borrow(write=True):
        return adopt_policy(store, who=Identity(who), origin="dashboard", now=5000.0, again=True)


def test_an_admin_adopts_an_earlier_policy_again(store, tmp_path, monkeypatch):
    superseded(store, tmp_path, monkeypatch)
    assert adopt_again(store, "root-of-all").replays_above == 2
    assert adopt(store).replays_above == 2
    assert len(audited(store)) == 3


def test_an_operator_does_not_adopt_an_earlier_policy_where_there_are_admins(store, tmp_path, monkeypatch):
    superseded(store, tmp_path, monkeypatch)
    with pytest.raises(NotPermitted, match="ann is an operator"):
        adopt_again(store, "ann")
    assert len(audited(store)) == 2


def test_an_operator_adopts_an_earlier_policy_where_there_is_no_admin(store, tmp_path, monkeypatch):
    superseded(store, tmp_path, monkeypatch, later=STRICTER.replace('admin = ["root-of-all"]', ""))
    with pytest.raises(NotPermitted):
        adopt_again(store, "ben")
    assert adopt_again(store, "ann").replays_above == 2
