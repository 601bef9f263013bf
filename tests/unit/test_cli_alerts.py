"""The `alerts` commands over a real store, and a receiver that a test alert goes to."""

from __future__ import annotations

import time

import orjson
import pytest
from click.testing import CliRunner

from producer_core.alerts import AlertLog, alert, follow
from producer_core.cli import main
from producer_core.store import Store
from tests.unit.alerting import receiver


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).close()
    return path


def run(path, *arguments):
    return CliRunner().invoke(main, ["alerts", *arguments, "--store", str(path)])


def test_the_rules_and_routes_that_hold_are_listed(path):
    listed = run(path, "rules").output

    assert "The built-in rules; there is no file of rules." in listed
    assert "error budget of 0.1 % burns 14.4x in 1 h and 5 min, 6x in 6 h and 30 min, by topic" in listed
    assert "no sign of life for 40 s" in listed
    assert "Told by producers themselves: acknowledged_lost, connection_lost" in listed


def test_rules_as_json_say_what_each_is(path):
    found = orjson.loads(run(path, "rules", "--json").output)

    by_name = {rule["name"]: rule for rule in found["rules"]}
    assert by_name["slow_delivery"]["for"] == 300.0
    assert found["file"] is None


def test_a_right_file_is_called_right_and_names_what_has_no_address(path, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[rules.high_latency]\nseverity = "info"\n'
        '[rules.mine]\nkind = "threshold"\nmetric = "dead"\nabove = 5\n[routes.pager]\nurl_env = "NO_SUCH_URL"\n'
    )

    result = CliRunner().invoke(main, ["alerts", "check", str(file)])

    assert result.exit_code == 0
    assert "mine.toml is right: 1 rule of your own, 1 built-in rule changed, 1 route." in result.output
    assert "The route pager has no address here: $NO_SUCH_URL is empty." in result.output


def test_a_wrong_file_is_refused_with_the_place_and_the_fix(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[rules.mine]\nkind = "threshold"\nmetric = "dead"\nabove = 5\nwindw = "5m"\n')

    result = CliRunner().invoke(main, ["alerts", "check", str(file)])

    assert result.exit_code == 2
    assert "line 5, rule 'mine', 'windw': There is no key 'windw'. Did you mean 'window'?" in result.output


def test_a_test_alert_fires_and_resolves_and_the_answer_is_shown(path, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        result = run(path, "test")

    assert result.exit_code == 0
    assert result.output.startswith("webhook: taken. HTTP 200 OK in ")
    assert "It wrote: ok" in result.output
    assert [status for _, _, status in hook.said] == ["firing", "resolved"]
    assert run(path, "list", "--all").output == "No alert has fired yet.\n"


def test_a_test_alert_that_is_refused_says_what_the_receiver_said_and_no_secret(path, monkeypatch):
    with receiver() as hook:
        hook.status, hook.body = 403, f"no access to {hook.url}".encode()
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        result = run(path, "test", "webhook")

    assert result.exit_code == 1
    assert "webhook: NOT taken. HTTP 403 Forbidden. It wrote: no access to ***" in result.output
    assert "s3cr3t" not in result.output


def test_without_a_route_a_test_says_how_to_make_one(path):
    result = run(path, "test")

    assert result.exit_code == 2
    assert "Set PRODUCER_CORE_ALERT_WEBHOOK" in result.output
    assert run(path, "test", "pager").exit_code == 2


def test_a_silence_is_listed_and_ended(path):
    assert run(path, "silence", "slow_delivery", "--subject", "orders", "--why", "upgrade").exit_code == 0
    assert "slow_delivery for orders. upgrade" in run(path, "rules").output

    ended = run(path, "unsilence", "slow_delivery", "--subject", "orders")

    assert ended.output == "slow_delivery is not quiet any more for orders.\n"
    assert run(path, "unsilence", "slow_delivery").exit_code == 2


def test_a_rule_of_the_file_can_be_silenced(path):
    (path.parent / "alerts.toml").write_text('[rules.mine]\nkind = "threshold"\nmetric = "dead"\nabove = 5\n')

    assert run(path, "silence", "mine").exit_code == 0
    assert run(path, "silence", "nothing").exit_code == 2


def test_a_muted_alert_is_listed_with_its_state(path):
    store, now = Store.open(path), time.time()
    AlertLog(store).record(follow({}, [alert("dedup_degraded", "p1", now, reason="x")], now))
    run(path, "silence", "dedup_degraded")

    assert "firing (silenced)" in run(path, "list").output
