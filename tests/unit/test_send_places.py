"""A send that is refused for its store or its telemetry topic leaves nothing behind."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from producer_core.brokers import embedded
from producer_core.cli import main


@pytest.mark.parametrize("options", [("--store", "/proc/no/such.duckdb"), ("--telemetry-topic", "a b")])
def test_a_send_that_is_refused_leaves_no_resume_state(tmp_path, monkeypatch, options):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)
    (tmp_path / "orders.jsonl").write_text('{"n": 1}\n')
    with embedded.start(topics={"orders": 1}) as broker:
        asked = [
            "send",
            "orders",
            str(tmp_path / "orders.jsonl"),
            "--bootstrap-servers",
            broker.bootstrap_servers,
        ]
        result = CliRunner().invoke(main, [*asked, *options])

    assert result.exit_code == 2, result.output
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []
