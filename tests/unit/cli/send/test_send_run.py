"""A send that is refused before its first row writes no state, so that the corrected command runs."""

from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.cli.send.send_run import SendRun
from producer_core.dlq import Spill
from producer_core.errors import StoreFull
from producer_core.store import Store, file_errors


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 1}) as running:
        yield running


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)
    return tmp_path / "state"


@pytest.fixture
def send(broker, state, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text("id,name\n1,a\n2\n3,c\n")

    def send(*options):
        command = ["send", "orders", str(file), "--bootstrap-servers", broker.bootstrap_servers, *options]
        return CliRunner().invoke(main, command, catch_exceptions=False)

    return send


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def states(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.state")}


REFUSED = [
    ("--key", "nope"),
    ("--partition", "1"),
    ("--header", "pc-id=y"),
    ("--header", "pc-original-timestamp=1"),
]


@pytest.mark.parametrize(
    "options", [("--store", "/proc/no/such.duckdb"), ("--telemetry-topic", "a b")], ids=" ".join
)
def test_a_send_with_an_unusable_store_or_telemetry_topic_leaves_no_file(send, state, options):
    assert send(*options).exit_code == 2
    assert files(state) == {}


@pytest.mark.slow
@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_the_corrected_command_runs_after_a_refused_send(send, state, options):
    refused = send(*options)
    left = files(state / "producer-core" / "sends")
    corrected = send()

    assert (refused.exit_code, left) == (2, {}), refused.output
    assert "3 rows of orders.csv read, 2 accepted" in corrected.stdout, corrected.output


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--restart", *one) for one in REFUSED], ids=" ".join)
def test_a_refused_send_does_not_change_the_state_of_an_earlier_one(send, state, options):
    begun = send("--strict")
    before = states(state)

    refused = send(*options)

    assert (begun.exit_code, refused.exit_code) == (1, 2), refused.output
    assert before
    assert states(state) == before


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["0", "1"])
def test_a_limit_within_the_settled_rows_sends_nothing_and_keeps_the_state(send, state, limit):
    begun = send("--strict")
    before = states(state)

    limited = send("--limit", limit)
    kept = states(state)
    resumed = send()

    assert (begun.exit_code, limited.exit_code) == (1, 0), limited.output
    assert "Resuming: 1 row is settled. No row is sent twice." in limited.stderr
    assert before
    assert kept == before
    assert "Resuming: 1 row is settled. No row is sent twice." in resumed.stderr, resumed.output
    assert "1 row was settled by earlier runs" in resumed.stdout


@pytest.mark.slow
def test_a_limit_of_no_rows_after_a_complete_send_announces_no_resend(send, state, tmp_path):
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    assert send().exit_code == 0

    nothing = send("--limit", "0")
    one = send("--limit", "1")

    assert (nothing.exit_code, one.exit_code) == (0, 0)
    assert "An earlier run sent 2 rows of this file to orders. This run sends none." in nothing.stderr
    assert "This run sends the first of them again, with a new message id." in " ".join(one.stderr.split())
    assert "1 row of orders.csv read, 1 accepted" in one.stdout


@pytest.mark.slow
def test_the_corrected_file_is_sent_by_the_same_command_after_a_strict_stop_at_the_first_row(
    send, state, tmp_path
):
    (tmp_path / "orders.csv").write_text("id,name\n1\n2,b\n")
    stopped = send("--strict")
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")

    assert (stopped.exit_code, states(state)) == (1, {})
    assert send("--strict").exit_code == 0


@pytest.mark.slow
def test_rows_appended_to_a_sent_file_are_sent_alone_or_with_every_row(send, tmp_path):
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    first = send()
    with (tmp_path / "orders.csv").open("a") as more:
        more.write("3,c\n")

    refused = send()
    rest = send("--skip", "3", "--json")
    every = send("--restart", "--json")

    assert (first.exit_code, refused.exit_code, refused.stdout) == (0, 2, ""), refused.output
    assert "extended after an earlier run sent 2 rows from it" in " ".join(refused.stderr.split())
    assert json.loads(rest.stdout)["acknowledged"] == 1
    assert json.loads(every.stdout)["acknowledged"] == 3


@pytest.mark.slow
def test_an_export_that_is_overwritten_is_sent_by_the_same_command(send, tmp_path):
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    send()
    (tmp_path / "orders.csv").write_text("id,name\n3,c\n4,d\n5,e\n")

    done = send("--json")

    assert json.loads(done.stdout)["acknowledged"] == 3
    assert "This file was replaced after an earlier run sent 2 rows from it to orders." in done.stderr


@pytest.mark.slow
def test_a_restart_that_ends_before_its_first_row_suggests_another_restart(send, tmp_path):
    send("--strict")
    (tmp_path / "orders.csv").write_text("id,name\n1\n2,b\n")

    stopped = send("--strict", "--restart", "--json")

    assert json.loads(stopped.stdout)["go_on"].endswith("--restart")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [(), ("--types", "text"), ("--format", "jsonl"), ("--format", "jsonl", "--dedup")],
    ids=" ".join,
)
def test_a_damaged_gzip_is_refused_before_its_first_row_and_the_intact_one_is_sent_by_the_same_command(
    send, state, tmp_path, options
):
    lines = b"".join(b"%d\n" % number for number in range(20_000))
    whole = gzip.compress(lines)
    compressed = tmp_path / "orders.csv"  # compression is detected by the first bytes
    compressed.write_bytes(whole[: len(whole) // 2])
    damaged = send("--json", *options)
    left = states(state)
    compressed.write_bytes(whole)

    fetched = send("--limit", "3", "--json", *options)

    assert (damaged.exit_code, damaged.stdout, left) == (2, "", {}), damaged.output
    assert "damaged" in damaged.stderr and "Fetch the file again" in damaged.stderr
    assert json.loads(fetched.stdout)["acknowledged"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partition", "99"), "Topic 'orders' has no partition 99. It has partition 0 only."),
        (("--header", "pc-id=y"), "The header 'pc-id' carries the message id; choose another name."),
    ],
)
def test_a_wrong_option_is_refused_before_every_row_becomes_a_dead_letter(send, state, options, message):
    refused = send(*options)

    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())
    assert list(state.rglob("*.duckdb")) == []


def damage(path):
    path.write_bytes(b"no DuckDB file" * 100)
    return path


def spilled(path):
    return [dead_letter.source for dead_letter in Spill(path).take()]


@pytest.mark.slow
def test_a_send_with_a_damaged_default_store_reports_it_and_keeps_the_dead_letters_beside_it(
    send, tmp_path, monkeypatch
):
    store = damage(tmp_path / "bad.duckdb")
    monkeypatch.setenv("PRODUCER_CORE_STORE", str(store))

    done = send("--json")

    assert (done.exit_code, json.loads(done.stdout)["malformed"]) == (1, 1)
    (note,) = [line for line in done.stderr.splitlines() if "The store is unavailable" in line]
    assert f"The file {store} is not a DuckDB file" in note
    assert f"The dead letters are in {store}.spill." in note
    assert spilled(tmp_path / "bad.duckdb.spill") == ["line 3 of orders.csv"]


@pytest.mark.slow
def test_a_send_whose_rows_are_all_acknowledged_succeeds_without_its_store(send, tmp_path, monkeypatch):
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    monkeypatch.setenv("PRODUCER_CORE_STORE", str(damage(tmp_path / "bad.duckdb")))

    done = send()

    assert done.exit_code == 0, done.output
    assert "acknowledged 2" in done.stdout
    assert done.stderr.count("The store is unavailable") == 1
    assert "dead letters are in" not in done.output


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--no-store",)], ids=["store", "no store"])
def test_dead_letters_go_to_the_state_folder_if_the_folder_of_the_store_cannot_be_written(
    send, state, monkeypatch, options
):
    monkeypatch.setenv("PRODUCER_CORE_STORE", "/proc/no/such.duckdb")

    done = send(*options)

    spill = state / "producer-core" / "store.duckdb.spill"
    assert done.exit_code == 1
    assert f"The dead letters are in {spill}." in done.output
    assert spilled(spill) == ["line 3 of orders.csv"]


@pytest.mark.slow
def test_a_send_whose_store_the_environment_disables_keeps_its_dead_letters_in_the_state_folder(
    send, state, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRODUCER_CORE_STORE", "none")

    done = send()
    refused = send("--telemetry-topic", "telemetry")

    spill = state / "producer-core" / "store.duckdb.spill"
    assert f"The dead letters are in {spill}." in done.output
    assert spilled(spill) == ["line 3 of orders.csv"]
    assert list(state.rglob("*.duckdb")) == [] and not (tmp_path / "none").exists()
    assert "requires the store; set PRODUCER_CORE_STORE, or pass --store." in refused.output


@pytest.mark.slow
def test_an_abandoned_send_still_reports_where_its_dead_letters_are(send, state, monkeypatch):
    def second_interrupt(run):
        run.state.stopped = "abandoned after a second Ctrl-C"
        raise KeyboardInterrupt

    monkeypatch.setenv("PRODUCER_CORE_STORE", "/proc/no/such.duckdb")
    monkeypatch.setattr(SendRun, "_finish", second_interrupt)

    done = send()

    spill = state / "producer-core" / "store.duckdb.spill"
    assert f"The dead letters are in {spill}." in done.stderr
    assert spilled(spill) == ["line 3 of orders.csv"]


@pytest.mark.slow
def test_dead_letters_that_no_folder_accepts_are_reported(send, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_STORE", "/proc/no/such.duckdb")
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/no")

    done = send("--json")

    assert done.exit_code == 1
    assert "1 dead letter could not be kept: The spill file /proc/no/" in done.stderr


@pytest.mark.slow
def test_a_full_disk_under_an_explicit_store_loses_no_dead_letter(send, state, tmp_path, monkeypatch):
    def full(path, *more, **options):
        raise file_errors.disk_full(tmp_path / "s.duckdb")

    def refuse(spill, dead_letters):
        if spill.path.parent == tmp_path:
            raise StoreFull("The disk is full.")
        append(spill, dead_letters)

    append = Spill.append
    monkeypatch.setattr(Store, "open", full)
    monkeypatch.setattr(Spill, "append", refuse)

    done = send("--store", str(tmp_path / "s.duckdb"))

    spill = state / "producer-core" / "store.duckdb.spill"
    assert done.exit_code == 1
    assert "is full; committed data is safe. Free some space" in done.stderr
    assert f"The dead letters are in {spill}." in done.stderr
    assert spilled(spill) == ["line 3 of orders.csv"]


@pytest.mark.slow
def test_a_strict_stop_counts_only_the_blank_lines_before_it_and_uses_the_singular(send, tmp_path):
    (tmp_path / "orders.csv").write_text("id,name\n\n1,a\n2\n\n\n3,c\n")

    stopped = send("--strict")
    resumed = send()

    assert "1 blank line skipped" in stopped.stdout
    assert "Resuming: 1 row is settled." in resumed.stderr
    assert "1 row was settled by earlier runs" in resumed.stdout
    assert "3 blank lines skipped" in resumed.stdout


@pytest.mark.slow
def test_a_rate_below_one_row_per_call_delays_the_rows_and_sends_each_once(send, tmp_path):
    """Two rows a second are further apart than the 0.5 s that one call waits."""
    result = send("--rate", "1.5", "-X", "rate_limit_burst_ms=0", "--no-store", "--json")

    assert json.loads(result.output)["acknowledged"] == 2
    assert result.exit_code == 1  # one row of the file is malformed


def test_a_rate_holds_from_the_first_row_on(send):
    """An unused limit of the producer would let a second's rows pass without a delay."""
    sent = json.loads(send("--rate", "2", "--no-store", "--json").output)

    assert sent["acknowledged"] == 2
    assert sent["elapsed_seconds"] > 0.3


def test_a_skip_beyond_the_last_line_is_reported(send):
    done = send("--skip", "99")

    assert done.exit_code == 0
    assert "--skip 99 skips every line of orders.csv" in done.stdout
    assert "skips every" not in send("--skip", "1", "--limit", "0").stdout
