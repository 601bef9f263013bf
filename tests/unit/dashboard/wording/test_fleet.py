"""Test the texts of the fleet page."""

from __future__ import annotations

import pytest

from producer_core.dashboard.wording import fleet as say


@pytest.mark.parametrize(
    ("known", "tone", "text"),
    [
        ((0, 0, 0, []), "quiet", "No producer has written to this store yet. Start one to see it here."),
        ((0, 0, 3, []), "quiet", "No producers running. The store has records of 3 producers."),
        ((0, 0, 3, [("silent", 2)]), "bad", "No producers running. 2 are not reporting."),
        ((1, 1, 1, []), "good", "1 producer running on 1 host, no problems."),
        ((12, 4, 12, []), "good", "12 producers running on 4 hosts, no problems."),
        ((12, 4, 12, [("alerting", 1)], True), "bad", "12 producers running on 4 hosts. 1 has a firing alert."),
        ((12, 4, 12, [("failing", 1)]), "warning", "12 producers running on 4 hosts. 1 has failed messages."),
        ((12, 4, 12, [("silent", 2), ("cut off", 1), ("full", 1)]), "bad",
         "12 producers running on 4 hosts. 2 are not reporting, 1 has no broker connection and 1 has a full queue."),
    ],
)  # fmt: skip
def test_the_summary_counts_problems(known, tone, text):
    assert say.fleet_summary(say.FleetSummary(*known)) == (tone, text)


def test_the_worst_alert_is_shown_in_every_state():
    alerts = [("critical", "no broker"), ("warning", "slow"), ("warning", "many wait")]
    assert say.alerts_of("alerting", alerts) == (alerts[0], ["warning: slow", "warning: many wait"])
    assert say.alerts_of("cut off", alerts)[1][0] == "critical: no broker"
    assert say.alerts_of("silent", alerts, most=2)[1][2:] == ["and 1 more alert"]
    assert say.alerts_of("well", []) == (("", ""), [])


def test_the_commands_that_fill_a_fleet_exist():
    import click

    from producer_core.cli import main

    for line in say.TELEMETRY_COMMANDS.splitlines():
        context, command, (_, *rest) = click.Context(main), main, line.split()
        while isinstance(command, click.Group) and not rest[0].startswith("-"):
            command = command.get_command(context, rest.pop(0))
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= known
