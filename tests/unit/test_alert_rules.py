"""A file of rules: what it may say, and how each mistake is told."""

from __future__ import annotations

import os

import pytest

from producer_core.alerts import RULES, AlertRule, BurnRate, Threshold, WindowPair, alert, load, rule_set_of
from producer_core.alerts.conditions import METRICS, Absence, in_words
from producer_core.alerts.routes import missing_addresses, routes_of
from producer_core.alerts.rule_parser import read
from producer_core.alerts.rule_set_file import RuleSetFile
from producer_core.errors import ConfigError

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


def test_a_file_adds_rules_changes_ours_and_names_routes():
    book, wrong = read(WHOLE)

    assert wrong == []
    assert book.rules["checkout_errors"] == AlertRule(
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
    assert book.rules["payments_budget"].condition == BurnRate(
        0.9995, (WindowPair(3600.0, 300.0, 14.4), WindowPair(21600.0, 1800.0, 6.0)), min_failures=3
    )
    assert book.rules["no_orders"].condition == Absence("traffic", 600.0, 86400.0)
    assert book.rules["dead_letters_old"].condition == Threshold("dlq_age", above=12 * 3600.0)
    assert book.rules["high_error_rate"].severity == "warning"
    assert not book.rules["error_budget_slow"].enabled
    assert (book.every, book.labels, book.link) == (
        10.0, {"env": "prod"}, "https://monitor.example/producer/",
    )  # fmt: skip
    assert [(route.name, route.url_env, route.severities, route.heartbeat) for route in book.routes] == [
        ("pager", "PAGER_URL", ("critical",), 300.0)
    ]


def rule(lines, name="mine", kind='kind = "threshold"\nmetric = "dead"\nabove = 1\n'):
    return f"[rules.{name}]\n{kind}{lines}\n"


MISTAKES = {
    "a key that does not exist names the nearest": (
        rule('windw = "5m"'),
        "line 5, rule 'mine', 'windw': There is no key 'windw'. Did you mean 'window'?",
    ),
    "a metric that does not exist": (
        '[rules.mine]\nkind = "threshold"\nmetric = "eror_rate"\nabove = 1',
        "line 3, rule 'mine', 'metric': 'eror_rate' is not one of them. Choose from error_rate,",
    ),
    "a duration that is none": (
        rule('for = "5 minutes"'),
        "line 5, rule 'mine', 'for': '5 minutes' is not a duration. Write for example \"30s\"",
    ),
    "a number where a duration belongs": (rule("window = 300"), "'window': 300 is not a duration."),
    "no window at all": (rule('window = "0s"'), "'window': '0s' is no time at all."),
    "neither above nor below": (
        '[rules.mine]\nkind = "threshold"\nmetric = "dead"\n',
        "line 1, rule 'mine', 'above': A threshold needs above or below, not both.",
    ),
    "above and below": (rule("below = 0"), "line 4, rule 'mine', 'above': A threshold needs"),
    "a metric by what it is not known by": (
        rule('by = "topic"', kind='kind = "threshold"\nmetric = "memory"\nabove = 1\n'),
        "line 5, rule 'mine', 'by': memory is known by producer. by = \"producer\"",
    ),
    "no kind": ("[rules.mine]\nabove = 1\n", "line 1, rule 'mine', 'kind': A rule of your own needs a kind."),
    "a built-in rule misspelt": (
        "[rules.high_eror_rate]\nseverity = 'info'\n",
        "Did you mean the built-in rule 'high_error_rate'?",
    ),
    "a kind that does not exist": (rule("", kind='kind = "treshold"\n'), "'kind': A rule of your own needs"),
    "another kind for ours": (
        '[rules.high_latency]\nkind = "threshold"\n',
        "The kind of a built-in rule cannot be changed. Give your rule another name",
    ),
    "a key of another kind": (
        '[rules.high_latency]\nabove = 5\n',
        "rule 'high_latency', 'above': There is no key 'above'.",
    ),
    "a severity that does not exist": (rule('severity = "page"'), "'page' is not one of them."),
    "a text that cannot be filled in": (
        rule('text = "{subjekt} is bad"'),
        "'text': The text cannot be filled in ('subjekt'). It may name {subject}, {value}, {threshold}, {says}",
    ),
    "a text that names what such a rule does not know": (
        rule('text = "{threshold:g}"', kind='kind = "absence"\nof = "delivery"\nafter = "5m"\n'),
        "It may name {subject}, {value}, {client}, {after}.",
    ),
    "other words for what producers say themselves": (
        '[rules.high_latency]\ntext = "slow"\n',
        "rule 'high_latency', 'text': There is no key 'text'.",
    ),
    "an inhibited rule that does not exist": (
        rule('inhibits = ["slow_delivry"]'),
        "line 5, rule 'mine', 'inhibits': There is no rule 'slow_delivry'. Did you mean 'slow_delivery'?",
    ),
    "pairs the wrong way round": (
        rule('pairs = [["5m", "1h", 14.4]]', kind='kind = "burn_rate"\n'),
        "'pairs': The first window of a pair is the long one.",
    ),
    "an objective that is no share": (
        rule("objective = 99.9", kind='kind = "burn_rate"\n'),
        "'objective': 99.9 is not a share.",
    ),
    "absence without its time": (
        '[rules.mine]\nkind = "absence"\nof = "traffic"\n',
        "line 1, rule 'mine', 'after': It is missing. For example after = \"10m\".",
    ),
    "a route without an address": (
        "[routes.pager]\ntimeout = '5s'\n",
        "line 1, route 'pager', 'url_env': One of url_env and url_file must say",
    ),
    "a route with both": ('[routes.pager]\nurl_env = "A"\nurl_file = "b"\n', "One of url_env and url_file"),
    "a key of the file": ("evry = '5s'\n", "line 1, the file, 'evry': There is no key 'evry'. Did you mean 'every'?"),
    "a label that every alert has": ('labels = { severity = "x" }\n', "'labels': severity is a label of every"),
    "no table": ("rules = 5\n", "A table was expected. [rules.my_name]"),
    "no TOML": ("[rules.mine\n", "line 1, the file: This is not TOML"),
    "a flag in quotes": (rule('enabled = "no"'), "'enabled': true or false was expected."),
    "a count that is none": (rule("min_events = 1.5"), "'min_events': 1.5 is not a count."),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_told_with_its_place_and_its_fix(name):
    text, said = MISTAKES[name]

    assert len(found := problems(text)) == 1
    assert said in found[0]


def test_every_mistake_of_a_file_is_told_at_once(tmp_path):
    path = tmp_path / "alerts.toml"
    path.write_text(rule('windw = "5m"\nfor = 3') + rule("", name="other", kind=""))

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert "alerts.toml holds 3 mistakes" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    "line", ['url = "https://x/s3cr3t"', 'token = "s3cr3t"', 'url_env = "https://x/s3cr3t"', 'url_file = "http://s3cr3t"']
)  # fmt: skip
def test_an_address_or_a_secret_in_the_file_is_refused_and_not_repeated(line):
    found = problems(f'[routes.pager]\nurl_env = "PAGER"\n{line}\n')

    assert found
    assert "s3cr3t" not in "".join(found)


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory\. Check its path"):
        load(tmp_path / "alerts.toml")


def test_what_producers_tell_has_the_severity_and_advice_of_the_file():
    book, _ = read('[rules.high_latency]\nseverity = "info"\nadvice = "Sleep on."\n')

    dressed = book.dressed(alert("high_latency", "p-1", 1.0, value=5.0, threshold=1.0))

    assert (dressed.severity, dressed.advice) == ("info", "Sleep on.")
    assert dressed.text.startswith("Messages take 5 ms")


def test_every_rule_of_ours_is_described_and_every_metric_can_be_said():
    for held in RULES.values():
        assert in_words(held.condition)
    for metric in METRICS.values():
        assert "{" not in metric.says.format(value=1.0, span="1 h")


def test_rules_lie_beside_the_store_or_where_the_environment_says(store, tmp_path, monkeypatch):
    assert rule_set_of(store).rules == RULES
    (tmp_path / "alerts.toml").write_text('[rules.high_latency]\nseverity = "info"\n')
    (tmp_path / "other.toml").write_text('[rules.high_latency]\nseverity = "critical"\n')

    beside = rule_set_of(store).rules["high_latency"].severity
    monkeypatch.setenv("PRODUCER_CORE_ALERTS", str(tmp_path / "other.toml"))
    named = rule_set_of(store).rules["high_latency"].severity

    assert (beside, named) == ("info", "critical")


def test_a_file_with_mistakes_changes_nothing_and_is_told(store, tmp_path):
    (tmp_path / "alerts.toml").write_text("[rules.high_latency]\nseverity = 5\n")

    book = rule_set_of(store)

    assert book.rules == RULES
    assert "rule 'high_latency', 'severity'" in book.problem


def test_a_file_is_read_again_when_it_was_changed(store, tmp_path):
    books, path = RuleSetFile(store), tmp_path / "alerts.toml"
    before = books.now().rules["high_latency"].severity
    path.write_text('[rules.high_latency]\nseverity = "info"\n')
    changed = books.now()
    again = books.now()
    path.unlink()

    assert (before, changed.rules["high_latency"].severity) == ("warning", "info")
    assert again is changed
    assert books.now().rules["high_latency"].severity == "warning"


def test_addresses_come_from_the_environment_or_a_file_beside_the_rules(tmp_path, monkeypatch):
    path = tmp_path / "alerts.toml"
    path.write_text(
        '[routes.a]\nurl_env = "A_URL"\n[routes.b]\nurl_file = "b.url"\n[routes.c]\nurl_env = "C_URL"\n'
    )
    (tmp_path / "b.url").write_text("https://b.example/hook\n")
    monkeypatch.setenv("A_URL", "https://a.example/hook")
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", "http://d.example")
    book = load(path)

    found = routes_of(book)

    assert [(route.name, route.url) for route in found] == [
        ("a", "https://a.example/hook"),
        ("b", "https://b.example/hook"),
        ("webhook", "http://d.example"),
    ]
    assert [settings.name for settings in missing_addresses(book)] == ["c"]
    assert "example" not in repr(found)


@pytest.mark.parametrize("address", ["ftp://x/s3cr3t", "s3cr3t", "http:///s3cr3t", "http://h:99999/s3cr3t", "http://h/s3cr3t x\n"])  # fmt: skip
def test_an_address_that_is_none_is_refused_without_being_repeated(monkeypatch, address):
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", address)

    with pytest.raises(ConfigError) as caught:
        routes_of(read("")[0])

    assert "s3cr3t" not in str(caught.value)


def test_a_file_of_an_address_that_is_missing_is_said_without_its_place(monkeypatch, tmp_path):
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK_FILE", os.fspath(tmp_path / "no.url"))

    with pytest.raises(ConfigError, match=r"no.url cannot be read: FileNotFoundError"):
        routes_of(read("")[0])
