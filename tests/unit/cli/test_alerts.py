"""The `alerts` commands on a real store, with a real receiver of test alerts."""

from __future__ import annotations

import time
from dataclasses import asdict

import orjson
import pytest
from click.testing import CliRunner

from producer_core.alerts import AlertLog, alert, follow
from producer_core.alerts.reported_alerts import ReportedAlerts
from producer_core.cli import main
from producer_core.dashboard import wording
from producer_core.kafka.replication import ReplicationWatch
from producer_core.store import Batch, Store
from tests.fixtures.alerts import receiver
from tests.fixtures.pages import producer
from tests.fixtures.replication import CONFIG, topic
from tests.support import eventually


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).close()
    return path


def run(path, *arguments):
    return CliRunner().invoke(main, ["alerts", *arguments, "--store", str(path)])


def test_rules_lists_evaluated_and_reported_rules(path):
    listed = run(path, "rules").output

    assert "Built-in rules; there is no rules file." in listed
    assert (
        "error budget of 0.1% burns at 14.4x over both 1 h and 5 min or at 6x over both 6 h and 30 min, by topic"
        in listed
    )
    assert "no heartbeat for 40 s" in listed
    assert (
        "  acknowledged_lost (critical): at least 1 acknowledged record is missing from its partition."
        in listed
    )


def test_rules_json_contains_every_rule(path):
    found = orjson.loads(run(path, "rules", "--json").output)

    by_name = {rule["name"]: rule for rule in found["rules"]}
    assert by_name["slow_delivery"]["for"] == 300.0
    assert found["file"] is None


def test_check_accepts_a_valid_file_and_names_routes_without_an_address(path, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[rules.high_latency]\nseverity = "info"\n'
        '[rules.mine]\nkind = "threshold"\nmetric = "dead"\nabove = 5\n[routes.pager]\nurl_env = "NO_SUCH_URL"\n'
    )

    result = CliRunner().invoke(main, ["alerts", "check", str(file)])

    assert result.exit_code == 0
    assert "mine.toml is valid: 1 new rule, 1 changed built-in rule, 1 route." in result.output
    assert "Route pager has no URL in this environment: $NO_SUCH_URL is empty." in result.output


def test_check_reports_a_mistake_with_its_line_and_its_fix(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[rules.mine]\nkind = "threshold"\nmetric = "dead"\nabove = 5\nwindw = "5m"\n')

    result = CliRunner().invoke(main, ["alerts", "check", str(file)])

    assert result.exit_code == 2
    assert "line 5, rule 'mine', 'windw': Unknown key 'windw'. Did you mean 'window'?" in result.output


def test_a_test_alert_fires_and_resolves_and_the_response_is_printed(path, monkeypatch):
    with receiver() as hook:
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        result = run(path, "test")

    assert result.exit_code == 0
    assert result.output.startswith("webhook: accepted. HTTP 200 OK in ")
    assert "Response: ok" in result.output
    assert [status for _, _, status in hook.received] == ["firing", "resolved"]
    assert run(path, "list", "--all").output == "No alert has fired yet.\n"


def test_a_refused_test_alert_prints_the_response_without_secrets(path, monkeypatch):
    with receiver() as hook:
        hook.status, hook.body = 403, f"no access to {hook.url}".encode()
        monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", hook.url)
        result = run(path, "test", "webhook")

    assert result.exit_code == 1
    assert "webhook: FAILED. HTTP 403 Forbidden. Response: no access to ***" in result.output
    assert "s3cr3t" not in result.output


def test_a_failed_test_alert_says_where_the_url_comes_from(path, monkeypatch, tmp_path):
    with receiver() as closed:
        url = closed.url
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", url)
    (tmp_path / "am.url").write_text(url)
    monkeypatch.setenv("PRODUCER_CORE_ALERTMANAGER_FILE", str(tmp_path / "am.url"))

    result = run(path, "test")

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "webhook: FAILED. connection refused.",
        "alertmanager: FAILED. connection refused.",
    ]
    assert result.stderr.splitlines() == [
        f"  Check the URL in {source}, and that this host can reach the receiver."
        for source in ("PRODUCER_CORE_ALERT_WEBHOOK", tmp_path / "am.url")
    ]


def test_a_test_without_a_route_explains_how_to_add_one(path):
    result = run(path, "test")

    assert result.exit_code == 2
    assert "Set PRODUCER_CORE_ALERT_WEBHOOK" in result.output
    assert run(path, "test", "pager").exit_code == 2


@pytest.mark.slow
def test_a_silence_is_listed_and_ended(path):
    assert run(path, "silence", "slow_delivery", "--subject", "orders", "--why", "upgrade").exit_code == 0
    assert "slow_delivery for orders. upgrade" in run(path, "rules").output

    ended = run(path, "unsilence", "slow_delivery", "--subject", "orders")

    assert ended.output == "slow_delivery is no longer silenced for orders.\n"
    assert run(path, "unsilence", "slow_delivery").exit_code == 2


def test_a_rule_of_the_file_can_be_silenced(path):
    (path.parent / "alerts.toml").write_text('[rules.mine]\nkind = "threshold"\nmetric = "dead"\nabove = 5\n')

    assert run(path, "silence", "mine").exit_code == 0
    assert run(path, "silence", "nothing").exit_code == 2


@pytest.mark.slow
def test_a_muted_alert_is_listed_with_its_state(path):
    store, now = Store.open(path), time.time()
    AlertLog(store).record(follow({}, [alert("dedup_degraded", "p1", now, reason="x")], now))
    run(path, "silence", "dedup_degraded")

    assert "firing (silenced)" in run(path, "list").output


# text and JSON output


def weak_replication(path, now):
    """Store the alert of a weakly replicated topic, as its producer reports it."""
    notices = []
    watch = ReplicationWatch(
        CONFIG,
        notices.append,
        describe=lambda names: {name: topic(name, replicas=2, min_isr=1) for name in names},
        clock=lambda: now,
    )
    watch.client_statistics({"topics": {"orders": {}}})
    (notice,) = eventually(lambda: notices)
    alerts = ReportedAlerts()
    alerts.notice(notice)
    (found,) = alerts.firing("p-1", now)
    AlertLog(Store.open(path)).record(follow({}, [found], now), told_by="p-1")
    return found


def test_the_list_of_alerts_respects_columns(path, monkeypatch):
    """The list was over 200 columns wide with COLUMNS=120."""
    weak_replication(path, time.time())
    monkeypatch.setenv("COLUMNS", "120")

    lines = run(path, "list").output.splitlines()

    assert max(map(len, lines)) <= 120 and "Topic orders: 4 partitions" in lines[1]


def test_the_list_is_not_truncated_in_a_pipe_without_columns(path, monkeypatch):
    text = weak_replication(path, time.time()).text
    monkeypatch.delenv("COLUMNS", raising=False)

    assert text in run(path, "list").output


@pytest.mark.slow
def test_the_advice_on_replication_is_printed_once(path):
    """`health`, `alerts list` and the Overview printed it twice in a row."""
    now = time.time()
    found = weak_replication(path, now)
    Store.open(path).append(Batch("p-1", 0, (), (), (), producer("p-1", now)))

    health = CliRunner().invoke(main, ["health", "--store", str(path)]).output
    overview = wording.alert({**asdict(found), "since": None}, now)

    for text in (health, run(path, "list").output, overview):
        assert text.count("min.insync.replicas=2") == 1, text


def test_times_in_json_are_seconds_and_iso_8601(path):
    now = 1_700_000_000.25
    weak_replication(path, now)

    found = orjson.loads(run(path, "list", "--json").output)

    assert found["more"] is False
    (item,) = found["alerts"]
    assert (item["started_at"], item["started_at_iso"]) == (now, "2023-11-14T22:13:20.250Z")
    assert "resolved_at_iso" not in item


@pytest.mark.slow
def test_json_reports_that_more_alerts_exist_than_the_limit(path):
    fired = [alert("connection_lost", f"p-{number}", 1e9, reason="refused") for number in range(3)]
    AlertLog(Store.open(path)).record(follow({}, fired, 1e9), told_by="p-0")

    found = orjson.loads(run(path, "list", "--json", "--limit", "2").output)

    assert (len(found["alerts"]), found["more"]) == (2, True)


def test_a_silence_of_zero_duration_is_refused(path):
    refused = run(path, "silence", "slow_delivery", "--for", "0s")
    assert refused.exit_code == 2 and "must be above 0" in refused.output
