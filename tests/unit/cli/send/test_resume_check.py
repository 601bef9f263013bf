"""Which sends can be resumed, and the command that resumes them."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from producer_core.cli.send.resume_check import can_resume, options_of, resume_command
from producer_core.cli.send.send_command import send
from producer_core.errors import ConfigError


@pytest.mark.parametrize(
    ("input", "dedup", "cluster", "message"),
    [
        (None, False, "c1", "Standard input cannot be read again"),
        ("/dev/null", False, "c1", "not a regular file"),
        (__file__, True, "c1", "--dedup keeps row hashes in memory"),
        (__file__, False, "embedded-1", "embedded broker"),
        (__file__, False, "mockCluster1", "embedded broker"),  # its id in a response
    ],
)
def test_an_input_that_cannot_be_exactly_once_is_refused_with_a_fix(input, dedup, cluster, message):
    path = None if input is None else Path(input)

    with pytest.raises(ConfigError, match=message) as refusal:
        can_resume(path, "exactly_once", dedup=dedup, cluster_id=cluster, restart=False)

    assert refusal.value.fix
    least = can_resume(path, "at_least_once", dedup=dedup, cluster_id=cluster, restart=False)
    assert least == (input == __file__ and not dedup)


def test_restart_is_refused_for_a_send_that_cannot_be_resumed():
    with pytest.raises(ConfigError, match="nothing to restart"):
        can_resume(None, "at_least_once", dedup=False, cluster_id="c1", restart=True)


def test_an_option_that_changes_rows_is_part_of_the_job():
    given = {"partition": 0, "key": None, "null": (), "header": (("a", "b"),), "skip": 0}

    assert options_of(given) == {"partition": "0", "header": "a=b", "skip": "0"}


def test_the_resume_command_omits_restart_and_masks_secrets():
    arguments = [
        "orders", "my rows.csv", "--key", "id", "--restart", "--delivery", "exactly_once", "--wait", "15s",
        "-X", "sasl.password=hunter2", "-X", "sasl.oauthbearer.extensions=a=hunter2", "-X", "linger.ms=5",
        "--header", "a=b", "--no-store",
    ]  # fmt: skip
    context: click.Context = send.make_context("send", arguments)

    command = resume_command(context)

    assert command.startswith("producer-core send orders 'my rows.csv' --key id")
    for part in ("--delivery exactly_once", "--wait 15s", "linger.ms=5", "--header a=b", "--no-store"):
        assert part in command
    assert "--restart" not in command
    assert "hunter2" not in command


@pytest.mark.parametrize("rate", ["0.5", "0.1234567890123", "1e-07", "1234567.25", "500"])
@pytest.mark.parametrize("wait", ["15s", "2.5s", "1m", "0.00001234567s"])
def test_the_resume_command_has_the_same_numbers(rate, wait):
    """Regression: it said `--rate 0.5s`, which the command refuses."""
    context = send.make_context("send", ["orders", "rows.csv", "--rate", rate, "--wait", wait])

    again = send.make_context("send", shlex.split(resume_command(context))[2:])

    assert again.params["rate"] == float(rate)
    assert again.params["wait"] == context.params["wait"]
