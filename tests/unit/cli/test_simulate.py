"""The commands `demo` and `simulate`."""

import json

import pytest
from click.testing import CliRunner

from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.simulate.traffic import TOPICS


@pytest.fixture(scope="module")
def broker():
    with embedded.start(topics={**dict.fromkeys(TOPICS, 1), "test-retry-topic": 1}) as broker:
        yield broker


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Write the settings of a small shop, which starts at once."""
    path = tmp_path_factory.mktemp("shop") / "small.json"
    path.write_text(json.dumps({"total_users": 50, "total_products": 20}))
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_generate_with_a_seed_is_reproducible(tmp_path, small):
    for name in ("a", "b"):
        result = run(
            "simulate",
            "--shop",
            small,
            "generate",
            "-t",
            "all",
            "-n",
            100,
            "--seed",
            7,
            "-o",
            tmp_path / name,
        )
        assert (result.exit_code, result.stderr) == (0, f"100 records written to {tmp_path / name}.\n")

    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    topics = [json.loads(line)["topic"] for line in (tmp_path / "a").read_text().splitlines()]
    assert [topics.count(name) for name in ("transactions", "user-events", "product-updates")] == [34, 33, 33]


def test_generate_stays_within_the_dates_and_prints_to_a_pipe(small):
    result = run(
        "simulate",
        "--shop",
        small,
        "generate",
        "-t",
        "user-events",
        "-n",
        20,
        "--start-date",
        "2025-03-01",
        "--end-date",
        "2025-03-02",
    )

    stamps = [json.loads(line)["timestamp"] for line in result.stdout.splitlines()]
    assert len(stamps) == 20 and all(stamp.startswith("2025-03-01") for stamp in stamps)


def test_generate_pretty_prints_one_json_document():
    assert (
        len(json.loads(run("simulate", "generate", "-t", "product-updates", "-n", 3, "--pretty").stdout)) == 3
    )


def test_dates_in_the_wrong_order_are_a_usage_error():
    result = run(
        "simulate", "generate", "-t", "all", "--start-date", "2025-03-02", "--end-date", "2025-03-01"
    )

    assert result.exit_code == 2 and "is before --start-date" in result.stderr


@pytest.mark.slow
def test_a_scenario_is_sent_and_counted(broker, small):
    servers = broker.bootstrap_servers

    result = run(
        "simulate",
        "--shop",
        small,
        "fraud_testing",
        "-b",
        servers,
        "-d",
        "3s",
        "--rate",
        2000,
        "--seed",
        1,
        "--no-store",
    )

    assert result.exit_code == 0, result.stderr
    rows = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in result.stdout.splitlines()[1:]}
    assert rows["transactions"] > rows["fraud-alerts"] > 0


@pytest.mark.slow
def test_only_the_chosen_topics_are_sent(broker, small):
    result = run(
        "simulate",
        "--shop",
        small,
        "stream",
        "-t",
        "analytics-results",
        "-b",
        broker.bootstrap_servers,
        "-d",
        "0.3s",
        "--rate",
        50,
        "--no-store",
    )

    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["topic", "analytics-results"]


@pytest.mark.slow
def test_a_dead_letter_sets_exit_code_1(broker, small):
    broker.reject("product-updates", "POLICY_VIOLATION")
    result = run(
        "simulate",
        "--shop",
        small,
        "stream",
        "-t",
        "product-updates",
        "-b",
        broker.bootstrap_servers,
        "-d",
        "0.3s",
        "--rate",
        50,
        "--no-store",
    )
    broker.accept("product-updates")

    assert result.exit_code == 1


def test_a_dry_run_needs_no_broker(small):
    result = run(
        "simulate",
        "--shop",
        small,
        "peak_traffic",
        "--dry-run",
        "--rate",
        100,
        "-d",
        "2m",
        "-b",
        "localhost:1",
    )

    assert result.exit_code == 0
    assert "nothing is sent" in result.stdout and '"transaction_id"' in result.stdout


@pytest.mark.slow
def test_history_is_sent(broker, tmp_path):
    shop = tmp_path / "shop.json"
    shop.write_text(json.dumps({"total_users": 9, "base_transaction_rate": 2, "base_event_rate": 3}))

    result = run(
        "simulate", "--shop", shop, "historical", "--days", 1, "-b", broker.bootstrap_servers, "--no-store"
    )

    assert result.exit_code == 0
    assert result.stdout.split() == [
        "topic", "acknowledged", "retried", "dead", "product-updates", "100", "0", "0", "transactions", "48", "0", "0",
        "user-events", "72", "0", "0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"fraud_rat": 1}', "Did you mean 'fraud_rate'?"),
        (
            '{"fraud_rate": 3, "total_users": 0}',
            "Total users must be positive; Fraud rate must be between 0 and 1.",
        ),
        ('{"total_users": "x"}', "wrong type"),
        ("{", "not JSON"),
    ],
)
def test_an_error_in_the_shop_file_is_reported_in_one_sentence(tmp_path, content, complaint):
    (tmp_path / "shop.json").write_text(content)

    result = run("simulate", "--shop", tmp_path / "shop.json", "config")

    assert result.exit_code == 2
    assert complaint in result.stderr and "Traceback" not in result.stderr


def test_the_printed_config_can_be_used_as_input(tmp_path):
    assert run("simulate", "config", "-o", tmp_path / "shop.json").exit_code == 0

    again = run("simulate", "--shop", tmp_path / "shop.json", "config")

    assert again.stdout == (tmp_path / "shop.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["simulate", "rush_hour"], "Unknown scenario 'rush_hour'"),
        (["simulate", "normal_traffic", "-d", "soon"], "is not a duration"),
        (["simulate", "normal_traffic", "--rate", "0"], "0"),
        (["simulate", "generate", "-t", "all", "-o", "/no/such/folder/x"], "cannot be written"),
        (["demo", "--demo", "everything"], "is not one of"),
    ],
)
def test_an_error_on_the_command_line_is_reported_in_one_sentence(arguments, complaint):
    result = run(*arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["simulate", "demo"])
def test_help_has_examples(command):
    assert f"producer-core {command} " in run(command, "--help").stdout
