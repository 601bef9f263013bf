"""Test that the command and the Python code of each action have the effect of the action, on copies of one store."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from producer_core import replay
from producer_core._internal.identity import Identity, system_user
from producer_core.alerts import AlertLog, alert, follow
from producer_core.cli import main
from producer_core.dashboard import actions
from producer_core.dashboard.actions import action_code, alerts, edits
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.auth import access
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.approvals import requests
from producer_core.dlq.revisions.drafts import Draft
from producer_core.dlq.revisions.edit_form import change_of, edit_form
from producer_core.dlq.revisions.editor import Editor
from producer_core.errors import ApprovalRequired
from producer_core.store import Retention, Store
from tests.factories import replay_runner
from tests.fixtures.approvals import write_policy
from tests.fixtures.edits import edit, fields, json_dead_letter, malformed
from tests.fixtures.replays import (
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    message_id,
    preflight_done,
    probe_with,
    write_heartbeat,
)
from tests.fixtures.sign_in import signed_in
from tests.support import copied_store, eventually

TOPIC = 'ord\'ers "x" $HOME; -y\n`id`'
REASON = 'It\'s "wrong" by\n$100 \\ -- `id`; --yes'
GROUP, OTHER_GROUP = "abc", "def"
BY = {"who": "ann", "origin": "cli"}
ONE, MALFORMED, EDITED, LISTED, SECRET = map(message_id, (1, 20, 21, 22, 23))
VALUE = {"order": 1, "a.b": {"c=d": 1}, "tags": ["x", "y", "z"], "note": "n", "password": "hunter2"}


@dataclass(frozen=True)
class Known:
    """What the tests need to know of the template store: the ids that writing it gave, and the moment of an archiving."""

    path: Path
    ready: str
    running: str
    paused: str
    alerts: tuple[str, ...]
    moment: float


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Fill a store with everything that an operator can act on."""
    path = tmp_path_factory.mktemp("template") / "the store's.duckdb"
    store = Store.open(path)
    write_heartbeat(store, time.time() + 3600)
    add_dead_letters(store, 4, topic=TOPIC)
    plain = [
        dead_letter(number, topic="plain", fingerprint=OTHER_GROUP, failed_at=3000.0 + number)
        for number in range(5, 9)
    ]
    archived = [dead_letter(number, topic="archived", key=b"a b'c") for number in range(10, 13)]
    json_values = [
        json_dead_letter(21, {"order": 1, "amount": 2}, topic="edits"),
        json_dead_letter(22, VALUE, topic="edits", headers=(("trace id", b"a=b"), ("old", b"1"))),
        json_dead_letter(23, VALUE, topic="edits"),
    ]
    DeadLetters(store).add([*plain, *archived, malformed(20, topic="edits"), *json_values])
    moment = DeadLetters(store).archive(DeadLetterFilter(topic="archived"), **BY).moment
    edit(store, fields({"amount": 3}), EDITED)
    states = {}
    for number, state in enumerate(("ready", "running", "paused")):
        one = DeadLetters(store)
        one.add([dead_letter(40 + number, topic=state)])
        where = DeadLetterFilter(topic=state)
        made = replay.plan(store, where, **BY, check_first=True, canary=2)
        preflight_done(store, made.operation_id, topic=state, newer_keys=1)
        states[state] = made.operation_id
    for state in ("running", "paused"):
        replay.go(store, states[state], **BY)
    replay.pause(store, states["paused"], **BY)
    AlertLog(store).silence("high_latency", TOPIC, until=time.time() + 3600, who="ann", why="", origin="cli")
    alert_ids = tuple(fire(store, subject) for subject in ("p-1", "p-2"))
    actions.resolve(store, OTHER_GROUP, who="ann")
    actions.set_objective(store, "plain", 90.0, 60.0, who="ann")
    store.change_settings({"keep_settled": 86_400.0}, **BY)
    store.close()
    return Known(path, states["ready"], states["running"], states["paused"], alert_ids, moment)


def fire(store, subject):
    item = alert("connection_lost", subject, 1000.0, reason="refused")
    AlertLog(store).record(follow({}, [item], 1000.0))
    return item.alert_id


# the three ways


COMPARED = {
    "dead_letters": "message_id, state, verdict, replayable, key, value_size, replay_count",
    "dead_letter_bodies": "message_id, value, headers",
    "dead_letter_revisions": "message_id, number, reason, patch, key, value, headers, replaced_id, undone_at IS NULL",
    "letter_events": "message_id, what",
    "operations": "selection, state, total, acknowledged, skipped, rate, stop_percent, newer, inconclusive",
    "operation_records": "message_id, state",
    "alerts": "alert_id, acknowledged_at IS NULL",
    "silences": "rule, subject, why, CASE WHEN until > epoch(now()) THEN round(until - created_at) END",
    "replay_requests": "request_id, state, reason, decision",
    "cause_resolutions": "fingerprint, note, fixed_in, old_versions, ended_at IS NULL",
    "settings": "name, value",
    "audit": "action, count",
}
"""The columns that an action decides. Names, times and new ids differ."""


def effect(store, *, live=False):
    """Return what the store has after an action. The audit log tells a replay that starts by itself from one that asks."""
    with store.borrow() as connection:
        return {
            table: sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
            for table, columns in COMPARED.items()
            if not (live and table == "audit")
        }


@pytest.fixture
def copy(known, tmp_path):
    """Return new copies of the template store, each at a path with a space and a quote."""

    def make(name):
        folder = tmp_path / f"{name} 'copy'"
        folder.mkdir()
        return Store.open(copied_store(known.path, folder))

    return make


@pytest.fixture
def shell(tmp_path):
    """Run commands as a shell does: it reads the quotes, and this process runs each producer-core with its arguments."""
    script = tmp_path / "bin" / "producer-core"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nprintf "%s\\0" "$@"; printf "\\0"\n')
    script.chmod(0o755)

    def run(command, answers=None):
        environment = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "HOME": "/never"}
        read = subprocess.run(
            ["sh", "-c", command], env=environment, capture_output=True, cwd=tmp_path, timeout=30
        )
        assert (read.returncode, read.stderr) == (0, b"")
        for arguments in read.stdout.decode().split("\0\0")[:-1]:
            done = CliRunner().invoke(main, arguments.split("\0"), input=answers)
            assert done.exit_code in (0, 3), done.output
        return done

    return run


def run_python(text):
    exec(compile(text, "<copied>", "exec"), {})


def check(copy, shell, act, code, *, answers=None, live=None):
    """Compare the effect of an action with those of its command and its code. Return the code.

    `live` are the replays that a live producer runs; an empty set are new ones.
    """
    acted = copy("act")
    before = effect(acted, live=live is not None)
    with live_producer(acted, live):
        done = act(acted)
    assert done is None or done.ok, done.text
    expected = effect(acted, live=live is not None)
    assert expected != before
    texts = None
    for way in ("command", "python"):
        store = copy(way)
        texts = code(store)
        if text := getattr(texts, way):
            with live_producer(store, live):
                shell(text, answers) if way == "command" else run_python(text)
            assert effect(store, live=live is not None) == expected, text
    return texts


@contextlib.contextmanager
def live_producer(store, wanted):
    """Run the replays in `wanted`, or the new ones if it is empty, as a live producer does; None runs none."""
    if wanted is None:
        yield
        return
    known, stop = {one.operation_id for one in replay.live(store)}, threading.Event()

    def run():
        while not stop.wait(0.02):
            for one in replay.live(store):
                if one.operation_id not in wanted and (wanted or one.operation_id in known):
                    continue
                if one.state == "checking":
                    preflight_done(store, one.operation_id, topic=TOPIC)
                elif one.state == "planned":
                    runner = replay_runner(
                        store, ScriptedSender(), probe=probe_with({}), interval=0.01, poll_interval=0.01
                    )
                    runner.run_one(one.operation_id, 30)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def ended(store, operation_id):
    eventually(lambda: replay.get(store, operation_id).ended)


# dead letters


SELECTIONS = [
    DeadLetterFilter(topic=TOPIC),
    DeadLetterFilter(topic=TOPIC, state=None),
    DeadLetterFilter(
        topic=TOPIC, group=GROUP, code="POLICY_VIOLATION", verdict="rejected", since=1001.25, until=1003.0
    ),
    DeadLetterFilter(ids=(message_id(0), message_id(2))),
    DeadLetterFilter(text="policy vio", key="k", cluster_id="cluster-1", application=""),
    DeadLetterFilter(body="v1"),
]


@pytest.mark.slow
@pytest.mark.parametrize("where", SELECTIONS, ids=range(len(SELECTIONS)))
def test_clear(copy, shell, where):
    code = check(
        copy,
        shell,
        lambda store: actions.clear(store, where),
        lambda store: action_code.clear(store.path, where),
    )
    assert code.command and code.python


@pytest.mark.slow
def test_restore(copy, shell):
    where = DeadLetterFilter(topic="archived", key="a b'c", state="archived")
    code = check(
        copy,
        shell,
        lambda store: actions.restore(store, where),
        lambda store: action_code.restore(store.path, where),
    )
    assert code.command and not code.python


@pytest.mark.slow
def test_undo_clear(copy, shell, known):
    undo = DeadLetterFilter(topic="archived"), known.moment
    code = check(
        copy,
        shell,
        lambda store: actions.undo_clear(store, undo),
        lambda store: action_code.undo_clear(store.path, undo),
    )
    assert code.command and not code.python


@pytest.mark.slow
def test_a_replay_that_starts_at_once(copy, shell):
    where = DeadLetterFilter(topic=TOPIC)

    def act(store):
        ended(store, actions.start_replay(store, where).operation_id)

    code = check(
        copy, shell, act, lambda store: action_code.replay(store.path, where, at_once=True), live=set()
    )
    assert code.command and code.python


@pytest.mark.slow
def test_a_replay_that_asks_first(copy, shell, monkeypatch):
    where = DeadLetterFilter(topic=TOPIC)

    def act(store):
        operation_id = actions.plan_replay(store, where).operation_id
        eventually(lambda: replay.get(store, operation_id).state == "ready")
        if confirmed:
            actions.confirm_replay(store, operation_id)
            ended(store, operation_id)

    def code(way):
        return lambda store: ActionCode(
            **{way: getattr(action_code.replay(store.path, where, at_once=False), way)}
        )

    confirmed = False  # the code only plans, as the button does
    assert check(copy, shell, act, code("python"), live=set()).python

    confirmed = True  # the command asks, and then sends
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
    again = lambda name: copy(f"asked {name}")  # noqa: E731
    assert check(again, shell, act, code("command"), live=set(), answers="y\n").command


# edits


DRAFTS = {
    "fields": {"value": {**VALUE, "order": 2, "note": REASON, "new": {"it's": [1.5, None, True]}}},
    "removed and appended": {
        "value": {"order": 1, "a.b": {"c=d": 1}, "tags": ["x", "Y", "z", "w w"], "password": "***"}
    },
    "items removed": {"value": {**VALUE, "tags": ["z"]}},
    "headers": {"headers": {"trace id": "c='d'", "new": "\n"}},
    "name with an equals sign": {"value": {**VALUE, "a.b": {"c=d": 2}}},
}
WITHOUT = {"headers": ["python"], "name with an equals sign": ["command"]}
"""The texts that these edits do not have."""


def draft_of(store, one, *, value=None, headers=None, key=None):
    form = edit_form(Editor(store).decoded(one))
    value = form.value if value is None else json.dumps(value).replace("hunter2", "***")
    headers = form.headers if headers is None else json.dumps(headers)
    return Draft(form.base, value, headers, form.key if key is None else key, REASON)


def code_of_draft(store, one, draft):
    edited = Editor(store).decoded(one)
    return action_code.edit(store.path, one, edited, change_of(edited, draft), draft.reason)


def check_edit(copy, shell, one, **texts):
    def act(store):
        return edits.save_edit(store, one, draft_of(store, one, **texts), who="ann")

    return check(copy, shell, act, lambda store: code_of_draft(store, one, draft_of(store, one, **texts)))


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTS)
def test_edit(copy, shell, name):
    code = check_edit(copy, shell, LISTED, **DRAFTS[name])

    assert [way for way in ("command", "python") if not getattr(code, way)] == WITHOUT.get(name, [])
    assert "hunter2" not in f"{code}"


@pytest.mark.slow
@pytest.mark.parametrize("value", [{"order": 1, "amount": 4}, ["a", {"b": "it's"}]])
def test_an_edit_of_an_edited_record(copy, shell, value):
    code = check_edit(copy, shell, EDITED, value=value)
    assert code.command and code.python


@pytest.mark.slow
def test_malformed_input_is_corrected_by_the_command_only(copy, shell):
    code = check_edit(copy, shell, MALFORMED, value={"order": 1}, key="it's a key")
    assert "--set-key" in code.command and not code.python


@pytest.mark.parametrize(
    "texts",
    [
        {"value": {**VALUE, "note": "4111 1111 1111 1111"}},
        {"value": {**VALUE, "token": "abc"}},
        {"headers": {"trace id": "a=b", "authorization": "Bearer abc"}},
        {"headers": {"trace id": "ada@example.com"}},
    ],
)
def test_an_edit_that_pages_would_mask_has_no_code(copy, texts):
    store = copy("one")
    assert not code_of_draft(store, SECRET, draft_of(store, SECRET, **texts))


@pytest.mark.slow
def test_undo_edit(copy, shell):
    code = check(
        copy,
        shell,
        lambda store: edits.undo_edit(store, EDITED),
        lambda store: action_code.undo_edit(store.path, EDITED),
    )
    assert code.command and code.python


# replays


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        {"newer": "send", "inconclusive": "send", "rate": 1000.5},
        {"newer": "skip", "canary": 1, "stop_percent": 25.0},
        {},
    ],
)
def test_go(copy, shell, known, choices):
    def act(store):
        assert actions.confirm_replay(store, known.ready, **choices).ok
        ended(store, known.ready)

    code = check(
        copy, shell, act, lambda store: action_code.go(store.path, known.ready, **choices), live={known.ready}
    )
    assert code.command and bool(code.python) == ("canary" not in choices)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_pause_resume_and_cancel(copy, shell, known, verb):
    act = {"pause": actions.pause_replay, "resume": actions.resume_replay, "cancel": actions.cancel_replay}[
        verb
    ]
    one = known.paused if verb == "resume" else known.running
    options = {"rate": 12.0} if verb == "resume" else {}
    code = check(
        copy, shell, lambda store: act(store, one, **options),
        lambda store: getattr(action_code, verb)(store.path, one, **options),
    )  # fmt: skip
    assert code.command and code.python


# requests


@pytest.fixture
def me(tmp_path, monkeypatch):
    """Sign in on the page as the system's user, who is an operator and an approver under a policy."""
    name = system_user()
    roles = f'operator = ["ada", "{name}"]\napprover = ["{name}"]'
    write_policy(monkeypatch, tmp_path, f"[roles]\n{roles}\n[second_person]\nreplays_above = 0\n")
    signed_in(monkeypatch, name)
    yield name
    access.set_guard(access.AccessGuard())


def requested(copy, known, tmp_path, who):
    """Return the id of a request of this person, and a function that makes copies of the store with it."""
    store = copy("requested")
    with pytest.raises(ApprovalRequired) as raised:
        replay.go(store, known.ready, who=who, origin="cli")
    store.close()

    def make(name):
        folder = tmp_path / f"{name} of the requested"
        folder.mkdir()
        return Store.open(copied_store(store.path, folder))

    return raised.value.request_id, make


@pytest.mark.slow
@pytest.mark.parametrize("reason", ["", REASON])
def test_approve(copy, shell, known, tmp_path, me, reason):
    one, make = requested(copy, known, tmp_path, Identity("ada"))
    code = check(
        make, shell, lambda store: actions.approve_request(store, one, reason=reason),
        lambda store: action_code.approve(store.path, one, reason=reason),
    )  # fmt: skip
    assert code.command and code.python


@pytest.mark.slow
def test_refuse(copy, shell, known, tmp_path, me):
    one, make = requested(copy, known, tmp_path, Identity("ada"))
    code = check(
        make, shell, lambda store: actions.refuse_request(store, one, reason=REASON),
        lambda store: action_code.refuse(store.path, one, reason=REASON),
    )  # fmt: skip
    assert code.command and code.python
    assert not action_code.refuse(known.path, one, reason=" ")


@pytest.mark.slow
def test_withdraw(copy, shell, known, tmp_path, me):
    one, make = requested(copy, known, tmp_path, Identity(me))
    code = check(
        make, shell, lambda store: actions.withdraw_request(store, one),
        lambda store: action_code.withdraw(store.path, one),
    )  # fmt: skip
    assert code.command and not code.python


@pytest.mark.slow
def test_a_start_that_needs_a_second_person_makes_a_request_each_way(copy, shell, known, me):
    code = action_code.go(known.path, known.ready)
    store = copy("python")
    with pytest.raises(ApprovalRequired):
        run_python(action_code.go(store.path, known.ready).python)
    other = copy("command")
    assert shell(action_code.go(other.path, known.ready).command).exit_code == 3
    assert [len(requests.list_requests(one)) for one in (store, other)] == [1, 1] and code


# causes, objectives and alerts


@pytest.mark.slow
@pytest.mark.parametrize("texts", [{}, {"fixed_in": "4.2.1 'rc'", "note": REASON.replace("\n", " ")}])
def test_resolve(copy, shell, texts):
    check_command(
        copy, shell, lambda store: actions.resolve(store, GROUP, **texts),
        lambda store: action_code.resolve(store.path, GROUP, **texts),
    )  # fmt: skip


def check_command(copy, shell, act, code):
    found = check(copy, shell, act, code)
    assert found.command and not found.python


@pytest.mark.slow
def test_reopen(copy, shell):
    check_command(
        copy, shell, lambda store: actions.reopen(store, OTHER_GROUP),
        lambda store: action_code.reopen(store.path, OTHER_GROUP),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["orders", "*", "-y"])
def test_set_objective(copy, shell, topic):
    check_command(
        copy, shell, lambda store: actions.set_objective(store, topic, 99.5, 5400.0),
        lambda store: action_code.set_objective(store.path, topic, 99.5, 5400.0),
    )  # fmt: skip


@pytest.mark.slow
def test_remove_objective(copy, shell):
    check_command(
        copy, shell, lambda store: actions.remove_objective(store, "plain"),
        lambda store: action_code.remove_objective(store.path, "plain"),
    )  # fmt: skip


@pytest.mark.slow
def test_change_retention(copy, shell):
    default = Retention()
    changes = {"keep_seconds": 5400.0, "keep_settled": default.keep_settled}

    def act(store):
        shown = {name: getattr(store.retention(), name) for name in changes}
        return actions.change_retention(store, changes, shown=shown)

    check_command(copy, shell, act, lambda store: action_code.change_retention(store.path, changes))


@pytest.mark.slow
def test_acknowledge(copy, shell, known):
    def act(store):
        for one in known.alerts:
            actions.acknowledge(store, one)

    check_command(copy, shell, act, lambda store: action_code.acknowledge(store.path, known.alerts))


@pytest.mark.slow
@pytest.mark.parametrize("subject", [TOPIC, "-y", ""])
def test_silence(copy, shell, subject):
    check_command(
        copy, shell, lambda store: alerts.silence(store, "slow_delivery", subject, 5400.0, REASON),
        lambda store: action_code.silence(store.path, "slow_delivery", subject, 5400.0, REASON),
    )  # fmt: skip


@pytest.mark.slow
def test_unsilence(copy, shell):
    check_command(
        copy, shell, lambda store: alerts.unsilence(store, "high_latency", TOPIC),
        lambda store: action_code.unsilence(store.path, "high_latency", TOPIC),
    )  # fmt: skip


# what has no text

CARD, PATH = "4111 1111 1111 1111", Path("/s.duckdb")


@pytest.mark.parametrize(
    "code",
    [
        action_code.clear(PATH, DeadLetterFilter(key=CARD)),
        action_code.clear(PATH, DeadLetterFilter(body="ada@example.com")),
        action_code.replay(PATH, DeadLetterFilter(text=f"error {CARD}"), at_once=True),
        action_code.approve(PATH, "r", reason=CARD),
        action_code.refuse(PATH, "r", reason=CARD),
        action_code.resolve(PATH, GROUP, note=CARD),
        action_code.silence(PATH, "rule", "", 60.0, CARD),
        action_code.clear(PATH, DeadLetterFilter(ids=tuple(map(str, range(action_code.MAX_IDS + 1))))),
        action_code.set_objective(PATH, "", 95.0, 60.0),
        action_code.remove_objective(PATH, ""),
    ],
)
def test_an_action_with_a_masked_text_or_without_a_choice_has_no_code(code):
    assert not code and (code.command, code.python) == ("", "")


def test_a_filter_without_an_option_has_no_command():
    code = action_code.clear(PATH, DeadLetterFilter(application_or_unnamed="shop"))
    assert not code.command and "application_or_unnamed='shop'" in code.python
