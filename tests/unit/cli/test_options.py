"""The command line as a whole: the cost of `--help`, errors, and formats."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from producer_core._internal.plural import plural
from producer_core.cli import COMMANDS, main, options, output
from producer_core.cli.lazy_group import Failed
from producer_core.errors import ConfigError

HEAVY = (
    "pandas",
    "plotly",
    "streamlit",
    "starlette",
    "pyspark",
    "duckdb",
    "pyarrow",
    "redis",
    "confluent_kafka",
    "rich",
    "numpy",
)
OURS = ("send", "stats", "health", "explain", "dlq", "replay", "alerts", "audit", "store", "doctor")


def run(*arguments, **options):
    return CliRunner().invoke(main, list(map(str, arguments)), **options)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom producer_core.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "Usage: " in done.stdout
    assert done.stderr.strip() == "[]"


def test_help_lists_every_command_without_importing_one():
    shown = run("--help").output

    assert all(f"  {command.name} " in shown for command in COMMANDS)


def test_help_of_a_group_lists_its_subcommands():
    assert "  fetch " in run("pipeline", "--help").output


@pytest.mark.parametrize("name", ["dlq", "replay", "alerts", "store", "broker", "pipeline", "dashboard"])
def test_help_of_a_group_describes_each_subcommand_in_a_complete_sentence(name):
    listed = run(name, "--help").output.partition("Commands:")[2].strip()

    assert listed.endswith(".")
    assert "..." not in listed


@pytest.mark.parametrize("name", OURS)
def test_every_command_has_a_detailed_help(name):
    result = run(name, "--help")

    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("org.apache.kafka.common.errors.TimeoutException", "_MSG_TIMED_OUT"),
        ("org.apache.kafka.common.errors.TimeoutException: Topic x not present", "_MSG_TIMED_OUT"),
        ("kafka.errors.KafkaTimeoutError", "_MSG_TIMED_OUT"),
        ('KafkaError{code=_MSG_TIMED_OUT,val=-192,str="Local: Message timed out"}', "_MSG_TIMED_OUT"),
        ("BufferError", "_QUEUE_FULL"),
        ("-1", "UNKNOWN"),
        ("-192", "_MSG_TIMED_OUT"),
        ("producer_core.errors.QueueFull", "QueueFull"),
    ],
)
def test_explain_accepts_an_error_as_programs_print_it(given, expected):
    result = run("explain", given)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split(" ")[0] == expected


def test_explain_still_rejects_an_unknown_option():
    result = run("explain", "--jsn")
    assert result.exit_code == 2
    assert "No such option" in result.output


@pytest.mark.parametrize("name", ["send", "stats", "health", "explain", "audit", "doctor"])
def test_the_help_of_a_command_shows_an_example(name):
    assert f"producer-core {name}" in run(name, "--help").output.split("\n", 1)[1]


def test_the_error_for_a_mistyped_command_suggests_the_nearest():
    result = run("sned")

    assert result.exit_code == 2
    assert "Did you mean send?" in result.stderr


def test_an_error_has_a_cause_and_a_fix_without_a_traceback(tmp_path):
    result = run("stats", "--store", tmp_path / "nothing.duckdb")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert 1 <= len(result.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["no/where.duckdb", "prod.py"])
@pytest.mark.parametrize(
    "command",
    [
        "stats", "health", "audit", "dlq list", "dlq groups", "dlq replay --yes", "dlq archive --yes",
        "dlq export letters.jsonl", "dlq publish --topic orders -b 127.0.0.1:1", "replay status", "alerts list",
        "alerts rules", "store info", "store prune", "pipeline reprocess --yes -b 127.0.0.1:1",
        "pipeline reprocess --dry-run -b 127.0.0.1:1",
    ],
)  # fmt: skip
def test_a_command_reports_a_mistyped_store_and_creates_nothing(tmp_path, monkeypatch, command, name):
    """The store is checked before the brokers are contacted: no broker listens on that port."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.py").write_text("print('not a store')")

    result = run(*command.split(), "--store", name)

    assert result.exit_code == 2, result.output
    said = "There is no store at" if name.startswith("no") else "is not a DuckDB file; it was not changed"
    assert said in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["prod.py"]


def test_a_command_reports_that_it_created_a_store(tmp_path):
    (tmp_path / "letters.jsonl").write_text("")
    command = [
        "dlq",
        "import",
        tmp_path / "letters.jsonl",
        "--no-manifest",
        "--yes",
        "--store",
        tmp_path / "new.duckdb",
    ]

    first, second = run(*command), run(*command)

    told = f"Created the store {tmp_path / 'new.duckdb'}."
    assert (first.exit_code, told in first.stderr) == (0, True), first.output
    assert (second.exit_code, told in second.stderr) == (0, False)


def test_a_closed_output_pipe_is_not_an_error(tmp_path):
    command = f"{sys.executable} -m producer_core.cli --help | head -1; exit ${{PIPESTATUS[1]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["producer_core", "producer_core.cli"])
def test_the_package_runs_as_a_module(name):
    done = subprocess.run(
        [sys.executable, "-m", name, "--version"], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("producer-core")


def test_the_version_option_prints_the_package_version():
    from producer_core import __version__

    assert __version__ in run("--version").output


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15m", 900), ("2h", 7200), ("1d12h", 129600), ("1.5h", 5400)]
)
def test_a_duration_is_parsed_into_seconds(text, seconds):
    assert options.DurationType().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "5", "2 parsecs", "m5"])
def test_an_invalid_duration_is_rejected(text):
    with pytest.raises(click.BadParameter, match="not a duration"):
        options.DurationType().convert(text, None, None)


def test_a_timestamp_is_parsed_as_iso_8601_in_utc():
    assert options.TimestampType().convert("1970-01-01T00:01:00", None, None) == 60.0
    assert options.TimestampType().convert("1970-01-01T01:01:00+01:00", None, None) == 60.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("02:10", 1_799_971_200 + 7800), ("23:59:30", 1_799_971_200 - 30), ("2:10Z", 1_799_971_200 + 7800)],
)
def test_a_time_of_the_day_is_the_last_one_in_utc(monkeypatch, text, expected):
    now = 1_799_971_200 + 3 * 3600.0  # 03:00 UTC
    monkeypatch.setattr("time.time", lambda: now)
    assert options.TimestampType().convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["24:00", "12:60", "1:2"])
def test_an_impossible_time_of_the_day_is_rejected(text):
    with pytest.raises(click.BadParameter, match="not a time"):
        options.TimestampType().convert(text, None, None)


def test_settings_are_read_from_properties_and_json_files(tmp_path):
    properties = tmp_path / "client.properties"
    properties.write_text("# ours\nacks = all\nsasl.jaas.config=a=b\n\n")
    as_json = tmp_path / "client.json"
    as_json.write_text('{"acks": "all", "linger.ms": 5}')

    assert options.read_settings(properties) == {"acks": "all", "sasl.jaas.config": "a=b"}
    assert options.read_settings(as_json) == {"acks": "all", "linger.ms": 5}


def test_an_invalid_settings_file_is_reported_with_its_line(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("acks=all\nnonsense\n")

    with pytest.raises(ConfigError, match="Line 2"):
        options.read_settings(path)


def test_an_option_overrides_the_settings_file(tmp_path):
    path = tmp_path / "client.json"
    path.write_text('{"acks": "1", "bootstrap.servers": "inside:9092"}')

    assert options.client_settings(None, (("acks", "all"),), path) == ("inside:9092", {"acks": "all"})
    assert options.client_settings("given:9092", (), path)[0] == "given:9092"


def test_without_a_terminal_a_confirmation_fails_unless_yes_is_given():
    with pytest.raises(Failed, match="Archive"):
        options.confirm("Archive 3?", yes=False)
    options.confirm("Archive 3?", yes=True)


def test_a_table_for_a_pipe_is_aligned_plain_text(capsys):
    output.table(("topic", "dead"), [("orders", 1200), ("p", None)], right=("dead",))

    assert capsys.readouterr().out == "topic    dead\norders  1,200\np           -\n"


def test_numbers_and_times_are_formatted_for_humans():
    assert plural(1, "row") == "1 row"
    assert plural(2000, "row") == "2,000 rows"
    assert output.milliseconds(0.0123) == "12.3 ms"
    assert output.duration(90) == "90 s"
    assert output.duration(7200) == "2 h"
    assert output.size(1536) == "1.5 KiB"
    assert output.shorten("a\n b" * 10, 5) == "a ba…"


@pytest.mark.parametrize("code", ["MSG_SIZE_TOO_LARGE", "NotLeaderForPartitionError", "10"])
def test_explain_prints_the_meaning_and_the_advice_for_a_code(code):
    result = run("explain", code)

    assert result.exit_code == 0
    assert "To do" in result.output
    assert set(json.loads(run("explain", code, "--json").output)) >= {
        "code",
        "number",
        "kind",
        "verdict",
        "meaning",
        "advice",
    }


def test_explain_suggests_the_nearest_code_for_an_unknown_one():
    result = run("explain", "MSG_SIZE_TO_LARGE")

    assert result.exit_code == 2
    assert "MSG_SIZE_TOO_LARGE" in result.stderr


def test_explain_lists_every_code_and_rejects_an_unknown_number():
    listed = run("explain", "--all")
    assert listed.exit_code == 0
    assert "MSG_SIZE_TOO_LARGE" in listed.output
    unknown = run("explain", "99999")
    assert unknown.exit_code == 2
    assert "explain --all" in unknown.output


@pytest.mark.parametrize("group", ["simulate", "replay", "alerts", "store", "broker", "dlq", "pipeline"])
def test_the_help_of_a_group_truncates_no_description(group):
    assert "..." not in run(group, "--help").output.partition("Commands:")[2]


def test_importing_the_options_loads_no_kafka_client():
    code = "import sys, producer_core.cli.options; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_rate_limit_that_is_not_valid_names_its_option():
    with pytest.raises(ConfigError, match=r"-X max.messages.per.second is not valid: .*orders=500,\*=2000"):
        options.client_settings(None, (("max.messages.per.second", "x"),), None)


@pytest.mark.parametrize("given", ["nan", "inf", "0", "-1"])
@pytest.mark.parametrize("command", [("send", "orders"), ("replay", "resume", "1")], ids=" ".join)
def test_a_rate_that_is_no_finite_number_is_refused_by_its_option(command, given):
    done = run(*command, "--rate", given)

    assert done.exit_code == 2
    assert "'--rate'" in done.output


def test_a_producers_file_gives_a_command_the_settings_of_the_client_only(tmp_path):
    file = tmp_path / "producer.properties"
    file.write_text("bootstrap.servers=a:1\ncircuit_breaker=true\nordering=strict\nlinger.ms=3\n")
    assert options.client_settings(None, (), file) == ("a:1", {"linger.ms": "3"})
