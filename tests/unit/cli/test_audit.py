"""Each operator action adds exactly one row to the audit log, on every interface, and no row is ever lost."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest
from click.testing import CliRunner

from producer_core import replay
from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.cli import main
from producer_core.dashboard import actions
from producer_core.dashboard.actions import alerts, exports
from producer_core.dashboard.auth import access
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError
from producer_core.store import Store
from producer_core.store.queries import queries
from tests.fixtures.replays import add_dead_letters, dead_letter, write_heartbeat
from tests.support import ROOT, copied_store

ANY = DeadLetterFilter()
WHO = {"who": "ann", "origin": "python"}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with four dead letters; copying it is faster than creating one."""
    made = Store.open(tmp_path_factory.mktemp("template") / "store.duckdb")
    add_dead_letters(made, 4)
    return made.path


@pytest.fixture
def store(template, tmp_path):
    opened = Store.open(copied_store(template, tmp_path))
    write_heartbeat(opened, time.time())
    return opened


@pytest.fixture
def dead_letters(store):
    return DeadLetters(store)


def rows(store, **asked):
    return store.rows("audit_latest", limit=1000, **asked)


def run(store, *words):
    return CliRunner().invoke(main, [*words, "--store", str(store.path)])


def operation(store, *, state="planned", **more):
    """Create a replay before the test counts rows, and return its id."""
    found = replay.plan(store, ANY, **WHO, check_first=state == "ready", **more)
    if state == "ready":
        store.execute(
            "replay_checked", operation=found.operation_id, checked="{}", now=time.time(), message="ready"
        )
    if state == "paused":
        replay.pause(store, found.operation_id, **WHO)
    return found.operation_id


def silent(store):
    """Set the last heartbeat of the only replay runner to 100 seconds ago."""
    write_heartbeat(store, time.time() - 100)


def archived(store, *, days=2):
    moment = time.time() - days * 86400
    DeadLetters(store, clock=lambda: moment).archive(ANY, **WHO)


def fired(store):
    found = alert("connection_lost", "p-1", time.time(), reason="refused")
    AlertLog(store).record([AlertChange("fired", found)])
    return found.alert_id


def looks_only(store):
    """Simulate a user with read-only access."""


def quiet(store):
    AlertLog(store).silence("connection_lost", "p-1", until=time.time() + 60, why="known", **WHO)


def refused(act):
    with pytest.raises(ConfigError):
        act()


PYTHON = {
    "replay": ("replay", None, lambda store, _: replay.plan(store, ANY, **WHO)),
    "go": ("replay_go", lambda store: operation(store, state="ready"), lambda store, one: replay.go(store, one, **WHO)),
    "pause": ("replay_pause", operation, lambda store, one: replay.pause(store, one, **WHO)),
    "resume": ("replay_resume", lambda store: operation(store, state="paused"), lambda store, one: replay.resume(store, one, **WHO)),
    "cancel": ("replay_cancel", operation, lambda store, one: replay.cancel(store, one, **WHO)),
    "archive": ("archive", None, lambda store, _: DeadLetters(store).archive(ANY, **WHO)),
    "archive of nothing": ("archive", None, lambda store, _: DeadLetters(store).archive(DeadLetterFilter(topic="none"), **WHO)),
    "restore": ("restore", archived, lambda store, _: DeadLetters(store).restore(ANY, **WHO)),
    "purge": ("purge", archived, lambda store, _: DeadLetters(store).purge(ANY, confirmation="purge 4", **WHO)),
    "refused purge": ("purge", archived, lambda store, _: refused(lambda: DeadLetters(store).purge(ANY, confirmation="yes", **WHO))),
    "reveal": ("reveal", None, lambda store, _: DeadLetters(store).reveal([dead_letter(1).message_id], **WHO)),
    "acknowledge": ("acknowledge", fired, lambda store, one: AlertLog(store).acknowledge(one, **WHO)),
    "silence": ("silence", None, lambda store, _: AlertLog(store).silence("connection_lost", until=time.time() + 60, why="", **WHO)),
    "unsilence": ("unsilence", quiet, lambda store, _: AlertLog(store).unsilence("connection_lost", "p-1", **WHO)),
    "settings": ("set", None, lambda store, _: store.change_settings({"keep_settled": 5.0, "keep_hours": None}, **WHO)),
}  # fmt: skip

SHELL = {
    "pause": ("replay_pause", operation, lambda store, one: ("replay", "pause", one)),
    "resume": ("replay_resume", lambda store: operation(store, state="paused"), lambda store, one: ("replay", "resume", one)),
    "cancel": ("replay_cancel", operation, lambda store, one: ("replay", "cancel", one, "--yes")),
    "archive": ("archive", None, lambda *_: ("dlq", "archive", "--yes")),
    "clear": ("archive", None, lambda *_: ("dlq", "clear", "--yes")),
    "restore": ("restore", archived, lambda *_: ("dlq", "restore", "--yes")),
    "purge": ("purge", archived, lambda *_: ("dlq", "purge", "--confirmation", "purge 4")),
    "refused purge": ("purge", archived, lambda *_: ("dlq", "purge", "--confirmation", "purge 3")),
    "purge with nobody there": ("purge", archived, lambda *_: ("dlq", "purge")),
    "purge of what is too young": ("purge", lambda store: archived(store, days=0), lambda *_: ("dlq", "purge")),
    "reveal in a list": ("reveal", None, lambda *_: ("dlq", "list", "--reveal")),
    "reveal of one": ("reveal", None, lambda *_: ("dlq", "show", dead_letter(1).message_id, "--reveal")),
    "acknowledge": ("acknowledge", fired, lambda store, one: ("alerts", "ack", one)),
    "silence": ("silence", None, lambda *_: ("alerts", "silence", "connection_lost")),
    "unsilence": ("unsilence", quiet, lambda *_: ("alerts", "unsilence", "connection_lost", "--subject", "p-1")),
    "prune": ("prune", None, lambda *_: ("store", "prune", "--yes")),
    "compact": ("compact", None, lambda *_: ("store", "compact", "--yes")),
    "export": ("export", None, lambda store, _: ("dlq", "export", str(store.path.with_name("out.csv")))),
    "settings": ("set", None, lambda *_: ("store", "set", "keep_settled=60d", "dlq_max_bytes=2GiB", "dlq_max_age=none")),
}  # fmt: skip

PAGE = {
    "replay": ("replay", None, lambda store, _: actions.start_replay(store, ANY)),
    "replay with nobody there": ("replay", silent, lambda store, _: actions.start_replay(store, ANY)),
    "look ahead": ("replay", None, lambda store, _: actions.plan_replay(store, ANY)),
    "go": ("replay_go", lambda store: operation(store, state="ready"), actions.confirm_replay),
    "refused go": ("replay_go", operation, actions.confirm_replay),
    "pause": ("replay_pause", operation, actions.pause_replay),
    "resume": ("replay_resume", lambda store: operation(store, state="paused"), actions.resume_replay),
    "quarantined too": ("replay", lambda store: operation(store, state="ready"), lambda store, one: actions.include_quarantined(store, one, True)),
    "cancel": ("replay_cancel", operation, actions.cancel_replay),
    "clear": ("archive", None, lambda store, _: actions.clear(store, ANY)),
    "undo": ("restore", lambda store: DeadLetters(store).archive(ANY, **WHO).moment, lambda store, at: actions.undo_clear(store, (ANY, at))),
    "restore": ("restore", archived, lambda store, _: actions.restore(store, DeadLetterFilter(state="archived"))),
    "acknowledge": ("acknowledge", fired, actions.acknowledge),
    "silence": ("silence", None, lambda store, _: alerts.silence(store, "connection_lost", "p-1", 60.0, "known")),
    "unsilence": ("unsilence", quiet, lambda store, _: alerts.unsilence(store, "connection_lost", "p-1")),
    "test of a route": ("test_route", None, lambda store, _: alerts.send_test(store, "pager")),
    "reveal": ("reveal", None, lambda store, _: exports.reveal(store, dead_letter(1).message_id)),
    "refused silence": ("silence", looks_only, lambda store, _: alerts.silence(store, "connection_lost", "p-1", 60.0, "known")),
    "refused test of a route": ("test_route", looks_only, lambda store, _: alerts.send_test(store, "pager")),
}  # fmt: skip


def _cases(acts):
    return [pytest.param(*case, id=name) for name, case in acts.items()]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "before", "act"), _cases(PYTHON))
def test_an_action_in_python_is_audited_once(store, action, before, act):
    given = before(store) if before else None
    known = len(rows(store, action=action))

    act(store, given)

    entry, *others = rows(store, action=action)
    assert len(others) == known
    assert (entry["who"], entry["origin"], entry["host"]) == ("ann", "python", socket.gethostname())
    assert entry["outcome"] and json.loads(entry["selection"]) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("action", "before", "act"), _cases(SHELL))
def test_an_action_on_the_command_line_is_audited_once(store, action, before, act):
    given = before(store) if before else None
    known = len(rows(store, action=action))

    run(store, *act(store, given))

    entry, *others = rows(store, action=action)
    assert len(others) == known
    assert (entry["origin"], entry["host"]) == ("cli", socket.gethostname())


@pytest.mark.parametrize(("action", "before", "act"), _cases(PAGE))
def test_an_action_on_the_dashboard_is_audited_once(store, action, before, act, monkeypatch):
    if before is looks_only:
        monkeypatch.setattr(access, "may_act", lambda: (False, "You have read-only access."))
    given = before(store) if before else None
    known = len(rows(store, action=action))

    act(store, given)

    entry, *others = rows(store, action=action)
    assert len(others) == known
    assert (entry["who"], entry["origin"]) == (actions.user(), "dashboard")


@pytest.mark.slow
def test_the_start_and_the_end_of_an_import_are_audited(store, tmp_path):
    run(store, "dlq", "export", str(tmp_path / "out.parquet"))
    into = Store.open(tmp_path / "other.duckdb")

    assert run(into, "dlq", "import", str(tmp_path / "out.parquet"), "--yes").exit_code == 0

    end, begin = rows(into, action="import")
    assert (end["count"], begin["count"]) == (4, 0)


def test_a_refused_purge_audits_the_typed_text_and_deletes_nothing(store, dead_letters):
    archived(store)

    result = run(store, "dlq", "purge", "--confirmation", "purge 3")

    assert result.exit_code == 2 and "Type exactly: purge 4" in result.stderr
    (entry,) = rows(store, action="purge")
    assert (entry["count"], entry["outcome"]) == (
        0,
        "Not confirmed: 'purge 3' was typed instead of 'purge 4'.",
    )
    assert dead_letters.count(DeadLetterFilter(state="archived")) == 4


def test_every_dashboard_action_is_covered():
    """A new action on the page needs its own row here."""
    source = "".join(path.read_text() for path in (ROOT / "dashboard" / "actions").glob("*.py"))
    acts = set(re.findall(r"^def ([a-z]\w+)\([^)]*\) -> Done:", source, re.M)) - {"attempt"}

    assert acts <= {
        "start_replay", "plan_replay", "confirm_replay", "pause_replay", "resume_replay", "cancel_replay",
        "include_quarantined", "clear", "undo_clear", "restore", "acknowledge", "silence", "unsilence", "send_test",
        "reveal",
    }  # fmt: skip


@pytest.mark.slow
def test_no_statement_updates_or_deletes_audit_rows():
    changing = re.compile(
        r"(?:UPDATE|DELETE\s+FROM|TRUNCATE|DROP\s+TABLE|INTO\s+OR\s+REPLACE)\s+\"?audit\b", re.I
    )
    sources = [*(ROOT / "producer_core").rglob("*.py"), *(ROOT / "producer_core").rglob("*.sql"), *(ROOT / "dashboard").rglob("*.py")]  # fmt: skip

    assert [str(path) for path in sources if changing.search(path.read_text())] == []
    using = re.compile(r"(?:FROM|INTO|JOIN)\s+audit\b", re.I)  # not the pipeline's audits
    assert {name for name, query in queries().items() if using.search(query.sql)} == {
        "add_audit",
        "audit_actions",
        "audit_latest",
        "replay_acts",
        "replay_audit",
    }


def test_pruning_never_deletes_audit_rows(store):
    DeadLetters(store).archive(ANY, **WHO)

    store.prune(time.time() + 1e9)

    assert store.rows("operations") == []
    assert [row["action"] for row in rows(store)] == ["archive"]


def test_a_failed_audit_write_rolls_back_its_action(store, dead_letters, monkeypatch):
    monkeypatch.setattr(Store, "audit", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        dead_letters.archive(ANY, **WHO)

    assert dead_letters.count(ANY) == 4
    with store.borrow() as connection:
        assert connection.execute("SELECT count(*) FROM letter_events").fetchone() == (0,)


@pytest.fixture
def old_acts(tmp_path):
    """Record an archive by bob at 1000, a restore by ann at 2000, and one by Bob at 3000."""
    moment = [1000.0]
    store = Store.open(tmp_path / "old.duckdb", clock=lambda: moment[0])
    for at, who, action in (
        (1000.0, "bob@shop", "archive"),
        (2000.0, "ann", "restore"),
        (3000.0, "Bob", "restore"),
    ):
        moment[0] = at
        outcome = "Did it for ann.lee@example.com"
        store.audit(
            who=who,
            origin="cli",
            action=action,
            selection={"key": "password=hunter2"},
            count=1,
            outcome=outcome,
        )
    return store


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((), [3000.0, 2000.0, 1000.0]),
        (("--who", "bob"), [3000.0, 1000.0]),
        (("--action", "restore"), [3000.0, 2000.0]),
        (("--since", "1970-01-01T00:33:20"), [3000.0, 2000.0]),
        (("--until", "1970-01-01T00:33:20"), [1000.0]),
        (("--limit", "1"), [3000.0]),
        (("--who", "bob", "--action", "archive"), [1000.0]),
        (("--who", "nobody"), []),
    ],
)
def test_the_audit_is_filtered_by_operator_action_and_time(old_acts, asked, found):
    result = run(old_acts, "audit", "--json", *asked)

    assert [entry["acted_at"] for entry in json.loads(result.stdout)] == found


def test_the_audit_is_printed_as_a_table_with_masked_values(old_acts):
    said = run(old_acts, "audit").output

    assert {"time", "operator", "origin", "action", "selection", "count", "outcome"} <= {
        *said.splitlines()[0].split()
    }
    assert "bob@shop" in said and f"cli on {socket.gethostname()}" in said
    assert "hunter2" not in said and "ann.lee" not in said
    assert run(old_acts, "audit", "--who", "nobody").output == "No recorded action matches.\n"


def test_an_unknown_action_and_a_reversed_time_range_are_reported(old_acts):
    unknown = run(old_acts, "audit", "--action", "archve")
    reversed_range = run(old_acts, "audit", "--since", "1h", "--until", "2h")

    assert unknown.output == "No action 'archve' is recorded. Recorded actions: archive, restore.\n"
    assert (reversed_range.exit_code, "--since must be before --until" in reversed_range.output) == (2, True)
