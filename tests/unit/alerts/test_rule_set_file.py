"""The rules file: its location, its mistakes, and changes while a process runs."""

from __future__ import annotations

import pytest

from producer_core.alerts import RULES, RuleSet, load, rule_set_of
from producer_core.alerts.rule_parser import read
from producer_core.alerts.rule_set import REPEAT
from producer_core.alerts.rule_set_file import RuleSetFile
from producer_core.errors import ConfigError
from tests.fixtures.alerts import HOUR, rule


def test_the_repeat_interval_is_read_from_the_rules_file(tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text('repeat = "90m"')
    assert load(path).repeat == 5400.0
    path.write_text('repeat = "0s"')
    assert load(path).repeat == 0.0
    assert RuleSet().repeat == REPEAT == 4 * HOUR

    _, (problem,) = read("repeat = 4")
    assert problem.line == 1 and "is not a duration" in problem.text


def test_all_mistakes_of_a_file_are_reported_together(tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text(rule('windw = "5m"\nfor = 3') + rule("", name="other", kind=""))

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert "alerts.toml contains 3 mistakes" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_an_unreadable_file_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory\. Check its path"):
        load(tmp_path / "alerts.toml")


def test_the_rules_file_is_beside_the_store_or_named_by_the_environment(store, tmp_path, monkeypatch):
    assert rule_set_of(store).rules == RULES
    (tmp_path / "alerts.toml").write_text('[rules.high_latency]\nseverity = "info"\n')
    (tmp_path / "other.toml").write_text('[rules.high_latency]\nseverity = "critical"\n')

    beside = rule_set_of(store).rules["high_latency"].severity
    monkeypatch.setenv("PRODUCER_CORE_ALERTS", str(tmp_path / "other.toml"))
    named = rule_set_of(store).rules["high_latency"].severity

    assert (beside, named) == ("info", "critical")


def test_a_file_with_mistakes_is_ignored_and_reported(store, tmp_path):
    (tmp_path / "alerts.toml").write_text("[rules.high_latency]\nseverity = 5\n")

    rule_set = rule_set_of(store)

    assert rule_set.rules == RULES
    assert "rule 'high_latency', 'severity'" in rule_set.problem


def test_a_changed_file_is_read_again(store, tmp_path):
    rule_set_file, path = RuleSetFile(store), tmp_path / "alerts.toml"
    before = rule_set_file.now().rules["high_latency"].severity
    path.write_text('[rules.high_latency]\nseverity = "info"\n')
    changed = rule_set_file.now()
    again = rule_set_file.now()
    path.unlink()

    assert (before, changed.rules["high_latency"].severity) == ("warning", "info")
    assert again is changed
    assert rule_set_file.now().rules["high_latency"].severity == "warning"
