"""The rules file: its valid content, and the message for each mistake."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertRule, BurnRate, Threshold, WindowPair, alert
from producer_core.alerts.conditions import Absence
from producer_core.alerts.rule_parser import read
from tests.fixtures.alerts import rule

WHOLE = """
every = "10s"
link = "https://monitor.example/producer/"
labels = { env = "prod" }

[rules.checkout_errors]
kind = "threshold"
metric = "error_rate"
above = 0.02
window = "10m"
by = "topic"
subjects = ["checkout", "payments.*"]
min_events = 50
severity = "critical"
for = "2m"
keep_firing_for = "1h30m"
text = "{subject}: {says} in {window}, more than {threshold:.0%}"
advice = "Call the shop."
runbook = "https://wiki.example/checkout"
inhibits = ["slow_delivery"]

[rules.payments_budget]
kind = "burn_rate"
objective = 0.9995
pairs = [["1h", "5m", 14.4], ["6h", "30m", 6]]
min_failures = 3

[rules.no_orders]
kind = "absence"
of = "traffic"
after = "10m"
lookback = "1d"
severity = "info"

[rules.dead_letters_old]
above = "12h"

[rules.high_error_rate]
severity = "warning"

[rules.error_budget_slow]
enabled = false

[routes.pager]
url_env = "PAGER_URL"
token_file = "pager.token"
severities = ["critical"]
heartbeat = "5m"
"""


def problems(text):
    return [str(problem) for problem in read(text)[1]]


def test_a_file_adds_rules_changes_built_in_rules_and_defines_routes():
    rule_set, problems = read(WHOLE)

    assert problems == []
    assert rule_set.rules["checkout_errors"] == AlertRule(
        "critical",
        "{subject}: {says} in {window}, more than {threshold:.0%}",
        "Call the shop.",
        condition=Threshold("error_rate", above=0.02, window=600.0, by="topic", min_events=50),
        for_=120.0,
        keep_firing_for=5400.0,
        inhibits=("slow_delivery",),
        runbook="https://wiki.example/checkout",
        subjects=("checkout", "payments.*"),
    )
    assert rule_set.rules["payments_budget"].condition == BurnRate(
        0.9995, (WindowPair(3600.0, 300.0, 14.4), WindowPair(21600.0, 1800.0, 6.0)), min_failures=3
    )
    assert rule_set.rules["no_orders"].condition == Absence("traffic", 600.0, 86400.0)
    assert rule_set.rules["dead_letters_old"].condition == Threshold("dlq_age", above=12 * 3600.0)
    assert rule_set.rules["high_error_rate"].severity == "warning"
    assert not rule_set.rules["error_budget_slow"].enabled
    assert (rule_set.every, rule_set.labels, rule_set.link) == (
        10.0, {"env": "prod"}, "https://monitor.example/producer/",
    )  # fmt: skip
    assert [(route.name, route.url_env, route.severities, route.heartbeat) for route in rule_set.routes] == [
        ("pager", "PAGER_URL", ("critical",), 300.0)
    ]


MISTAKES = {
    "an unknown key": (
        rule('windw = "5m"'),
        "line 5, rule 'mine', 'windw': Unknown key 'windw'. Did you mean 'window'?",
    ),
    "an unknown metric": (
        '[rules.mine]\nkind = "threshold"\nmetric = "eror_rate"\nabove = 1',
        "line 3, rule 'mine', 'metric': 'eror_rate' is not valid. Choose from error_rate,",
    ),
    "an invalid duration": (
        rule('for = "5 minutes"'),
        "line 5, rule 'mine', 'for': '5 minutes' is not a duration. Write, for example, \"30s\"",
    ),
    "a number instead of a duration": (rule("window = 300"), "'window': 300 is not a duration."),
    "an empty window": (rule('window = "0s"'), "'window': '0s' is not a positive duration."),
    "neither above nor below": (
        '[rules.mine]\nkind = "threshold"\nmetric = "dead"\n',
        'line 1, rule \'mine\', \'above\': Exactly one of "above" and "below" must be set.',
    ),
    "above and below": (rule("below = 0"), 'line 4, rule \'mine\', \'above\': Exactly one of "above" and "below"'),
    "a subject that the metric does not have": (
        rule('by = "topic"', kind='kind = "threshold"\nmetric = "memory"\nabove = 1\n'),
        "line 5, rule 'mine', 'by': memory can only be grouped by producer. by = \"producer\"",
    ),
    "no kind": ("[rules.mine]\nabove = 1\n", "line 1, rule 'mine', 'kind': A new rule requires a kind."),
    "a built-in rule misspelt": (
        "[rules.high_eror_rate]\nseverity = 'info'\n",
        "Did you mean the built-in rule 'high_error_rate'?",
    ),
    "an unknown kind": (rule("", kind='kind = "treshold"\n'), "'kind': A new rule requires"),
    "another kind for a built-in rule": (
        '[rules.high_latency]\nkind = "threshold"\n',
        "The kind of a built-in rule cannot be changed. Give your rule another name",
    ),
    "a key of another kind": (
        '[rules.high_latency]\nabove = 5\n',
        "rule 'high_latency', 'above': Unknown key 'above'.",
    ),
    "an unknown severity": (rule('severity = "page"'), "'page' is not valid."),
    "an unknown placeholder": (
        rule('text = "{subjekt} is bad"'),
        "'text': Invalid placeholder in the text ('subjekt'). Valid: {subject}, {value}, {threshold}, {says}",
    ),
    "a placeholder of another kind of rule": (
        rule('text = "{threshold:g}"', kind='kind = "absence"\nof = "delivery"\nafter = "5m"\n'),
        "Valid: {subject}, {value}, {client}, {after}.",
    ),
    "a text for a rule that producers report": (
        '[rules.high_latency]\ntext = "slow"\n',
        "rule 'high_latency', 'text': Unknown key 'text'.",
    ),
    "an unknown inhibited rule": (
        rule('inhibits = ["slow_delivry"]'),
        "line 5, rule 'mine', 'inhibits': Unknown rule 'slow_delivry'. Did you mean 'slow_delivery'?",
    ),
    "pairs with the short window first": (
        rule('pairs = [["5m", "1h", 14.4]]', kind='kind = "burn_rate"\n'),
        "'pairs': The first window of a pair must be the longer one.",
    ),
    "an objective above 1": (
        rule("objective = 99.9", kind='kind = "burn_rate"\n'),
        "'objective': 99.9 is not between 0 and 1.",
    ),
    "absence without its duration": (
        '[rules.mine]\nkind = "absence"\nof = "traffic"\n',
        "line 1, rule 'mine', 'after': The key is missing. For example, after = \"10m\".",
    ),
    "a route without an address": (
        "[routes.pager]\ntimeout = '5s'\n",
        "line 1, route 'pager', 'url_env': Exactly one of url_env and url_file must be set",
    ),
    "a route with two addresses": (
        '[routes.pager]\nurl_env = "A"\nurl_file = "b"\n', "Exactly one of url_env and url_file"
    ),
    "an unknown key of the file": (
        "evry = '5s'\n", "line 1, the file, 'evry': Unknown key 'evry'. Did you mean 'every'?"
    ),
    "a label that every alert has": ('labels = { severity = "x" }\n', "'labels': severity is a label of every"),
    "no table": ("rules = 5\n", "Expected a table. [rules.my_name]"),
    "no TOML": ("[rules.mine\n", "line 1, the file: This is not valid TOML"),
    "a flag in quotes": (rule('enabled = "no"'), "'enabled': Expected true or false."),
    "a fractional count": (rule("min_events = 1.5"), "'min_events': 1.5 is not a count."),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_reported_with_its_line_and_its_fix(name):
    text, message = MISTAKES[name]

    assert len(found := problems(text)) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    "line", ['url = "https://x/s3cr3t"', 'token = "s3cr3t"', 'url_env = "https://x/s3cr3t"', 'url_file = "http://s3cr3t"']
)  # fmt: skip
def test_an_address_or_a_secret_in_the_file_is_refused_and_not_repeated(line):
    found = problems(f'[routes.pager]\nurl_env = "PAGER"\n{line}\n')

    assert found
    assert "s3cr3t" not in "".join(found)


def test_a_reported_alert_gets_the_severity_and_advice_of_the_file():
    rule_set, _ = read('[rules.high_latency]\nseverity = "info"\nadvice = "Ignore it."\n')

    item = rule_set.with_overrides(alert("high_latency", "p-1", 1.0, value=5.0, threshold=1.0))

    assert (item.severity, item.advice) == ("info", "Ignore it.")
    assert item.text.startswith("Messages take 5 ms")
