"""deploy/prometheus/rules.yml in promtool and in a real Prometheus that scrapes a store."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.alerts.alert_state import resolved
from producer_core.store import Batch, Store
from tests.fixtures.monitoring import get, metrics_serve, prometheus
from tests.fixtures.pages import producer
from tests.support import ROOT, eventually

pytestmark = pytest.mark.prometheus

DEPLOY = ROOT / "deploy" / "prometheus"
RULES = DEPLOY / "rules.yml"


def run(promtool, *arguments):
    return subprocess.run([promtool, *map(str, arguments)], capture_output=True, text=True, cwd=DEPLOY)


def test_promtool_accepts_the_rules(promtool):
    found = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES)

    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("file", ["rules_test.yml", "rules_of_days_test.yml"])
def test_the_unit_tests_of_the_rules_pass(promtool, file):
    found = run(promtool, "test", "rules", file)

    assert found.returncode == 0, found.stdout + found.stderr


def test_the_unit_tests_of_the_rules_fail_if_a_threshold_changes(promtool, tmp_path):
    (tmp_path / "rules_test.yml").write_text((DEPLOY / "rules_test.yml").read_text())
    (tmp_path / "rules.yml").write_text(RULES.read_text().replace("> 100000", "> 100001"))

    found = run(promtool, "test", "rules", tmp_path / "rules_test.yml")

    assert found.returncode == 1
    assert "many_unsettled" in found.stdout + found.stderr


def test_an_alert_of_the_store_fires_in_prometheus_until_it_is_resolved(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    store.append(Batch("p", 0, producer=producer("p", int(time.time()))))
    log, item = AlertLog(store), alert("fenced", "p", time.time(), text="another process has the id")
    log.record([AlertChange("fired", item)])

    with (
        metrics_serve(store.path) as url,
        prometheus(tmp_path / "prometheus", {"producer_core": url}, rules=[RULES]) as found,
    ):
        (labels,) = eventually(lambda: [one for one in found.firing() if one["alertname"] == "fenced"])
        assert (labels["severity"], labels["job"]) == ("critical", "producer_core")

        log.record([AlertChange("resolved", resolved(item, time.time()))])
        eventually(lambda: "fenced" not in [one["alertname"] for one in found.firing()])

        evaluated = eventually(lambda: judged(found))
        assert {rule["name"]: rule.get("lastError") for rule in evaluated if rule["health"] != "ok"} == {}


def judged(found):
    """Return all rules once each has been evaluated."""
    groups = json.loads(get(f"{found.url}/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return rules if all(rule["health"] != "unknown" for rule in rules) else None
