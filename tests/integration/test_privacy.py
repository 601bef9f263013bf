"""Plant secrets in every part of messages and errors: no output shows a secret unless the user requests it."""

from __future__ import annotations

import json
import logging
import time
import zipfile
from datetime import datetime

import pytest
from click.testing import CliRunner

from producer_core import replay
from producer_core._internal.identity import Identity
from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.cli import main
from producer_core.dashboard import wording
from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dashboard.wording.dead_letters import content
from producer_core.diagnostics.incident import IncidentBundle
from producer_core.dlq import DeadLetterFilter, DeadLetterQueue, DeadLetters
from producer_core.dlq.revisions.changes import FieldChange
from producer_core.dlq.revisions.editor import Editor
from producer_core.errors import InvalidMessage
from producer_core.events import Attempt
from producer_core.kafka.classify import fingerprint
from producer_core.messages import Message
from producer_core.producer.monitor import Monitor
from producer_core.producer.send_batch import BatchSend
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import CLUSTER, ScriptedSender, dead_letter, probe_with, write_heartbeat

PLANTED = {
    "card": "4111111111111111",
    "address": "ann.lee@shop.example",
    "password": "hunter2secret",
    "bearer": "abcDEF123456token",
    "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl",
    "service key": "AKIAIOSFODNN7EXAMPLE",
    "url": "pa55w0rdInUrl",
    "cookie": "sid0123456789",
    "house": "CUST-987654",
    "house name": "1970-01-31",
}
ERROR = (
    "refused card 4111 1111 1111 1111 of ann.lee@shop.example, password=hunter2secret, Bearer abcDEF123456token, "
    "redis://app:pa55w0rdInUrl@cache:6379, CUST-987654, birth_date=1970-01-31, AKIAIOSFODNN7EXAMPLE"
)
VALUE = {
    "card": {"number": 4111111111111111, "cvv": 123},
    "customer": {"email": "ann.lee@shop.example", "birthDate": "1970-01-31", "note": "CUST-987654 called"},
    "ann.lee@shop.example": True,
    "auth": {"password": "hunter2secret", "tokens": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"]},
    "nested": '{"password": "hunter2secret", "url": "https://u:pa55w0rdInUrl@host/"}',
}
HEADERS = (
    ("Authorization", b"Bearer abcDEF123456token"),
    ("Cookie", b"sid0123456789"),
    ("for ann.lee@shop.example", b"AKIAIOSFODNN7EXAMPLE"),
    ("binary", b"\xff\x00 ann.lee@shop.example 4111111111111111"),
    ("birth-date", b"1970-01-31"),
)
RULES = r"""
names = ["birth_date"]
patterns = ['\bCUST-\d{6}\b']
"""


@pytest.fixture(autouse=True, scope="module")
def rules(tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "masking.toml"
    path.write_text(RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRODUCER_CORE_MASKING", str(path))
        yield


def planted(number, **changes):
    now = time.time()
    return dead_letter(
        number,
        **{
            "key": [b"ann.lee@shop.example", b'{"password": "hunter2secret"}', b"\xffann.lee@shop.example", b"CUST-987654"][number % 4],
            "value": [json.dumps(VALUE).encode(), b"\x00\xff" + json.dumps(VALUE).encode(), ERROR.encode(), b'{"password": "hunter2secret'][number % 4],
            "headers": HEADERS,
            "error_text": ERROR,
            "verdict_reason": f"The broker said: {ERROR}",
            "attempts": (Attempt(now - 5, "POLICY_VIOLATION", ERROR),),
            "code": "POLICY_VIOLATION" if number % 2 else "SOMETHING_NEW",
            "fingerprint": fingerprint("POLICY_VIOLATION" if number % 2 else "SOMETHING_NEW", ERROR),
            "source": "line 17 of ann.lee@shop.example.csv",
            "accepted_at": now - 10,
            "failed_at": now - 4 + number / 10,
            **changes,
        },
    )  # fmt: skip


class Refusing(ScriptedSender):
    """Rejects every replayed message with an error that also contains secrets."""

    def outcome(self, one):
        return replay.ReplayResult(
            one.message_id,
            "failed",
            dead_letter=planted(0, message_id=one.message_id, failed_at=time.time()),
            text=ERROR,
        )


@pytest.fixture(scope="module")
def store(tmp_path_factory, rules):
    """Fill a store with secrets in dead letters, in a failed replay, in an archive action and in alerts."""
    opened, now = Store.open(tmp_path_factory.mktemp("planted") / "store.duckdb"), time.time()
    DeadLetters(opened).add([planted(number) for number in range(6)])
    write_heartbeat(opened, now)
    operation = replay.plan(
        opened, DeadLetterFilter(ids=(dead_letter(5).message_id,)), who="ann", origin="cli", can_run=CLUSTER
    )
    replay_runner(opened, Refusing(), probe=probe_with({})).run_one(operation.operation_id, 60)
    DeadLetters(opened).archive(DeadLetterFilter(key="CUST-987654"), who="ann", origin="cli")
    edit(opened)
    approve(opened, now)
    found = [alert("connection_lost", "p-1", now, reason=ERROR), alert("fatal_error", "p-1", now, text=ERROR)]
    AlertLog(opened).record([AlertChange("fired", one) for one in found])
    return opened


EDITED = dead_letter(2).message_id


def edit(store):
    """Edit a dead letter: the patch, the value, a header and the reason contain secrets."""
    change = FieldChange(value=VALUE, set_headers=(("X-Note", ERROR.encode()), ("pin", b"sid0123456789")))
    editor = Editor(store)
    preview = editor.preview(DeadLetterFilter(ids=(EDITED,), state=None), change)
    assert (preview.count, preview.replacements) == (1, 0), preview.refusals
    editor.keep(preview, who="ann", origin="cli", reason=f"{ERROR} sid: cookie=sid0123456789")


def approve(store, now):
    """Request a replay and approve it; the rule and the reasons contain secrets."""
    person = Identity("ann")
    with store.borrow(write=True):
        store.execute(
            "request_insert", request="abcdef012345", operation="o-1", cluster=CLUSTER, records=3, rule=ERROR,
            effect=json.dumps({"topics": {"orders": 3}, "choices": {}}), plan_hash="0" * 64,
            content_hash="0" * 64, rate=None, who=person, identity=person.to_json(), origin="cli", host="h",
            reason=ERROR, now=now, expires=now + 60,
        )  # fmt: skip
        store.execute(
            "request_decide", request="abcdef012345", state="approved", who=person, identity=person.to_json(),
            origin="cli", now=now, reason=ERROR,
        )  # fmt: skip
    store.audit(
        who=person, origin="cli", action="request_approve", selection={"request": "abcdef012345"}, count=3,
        outcome=f"approved: {ERROR}",
    )  # fmt: skip


def leaked(text):
    """Return the names of the planted secrets that the text contains, with or without its spaces."""
    return [name for name, secret in PLANTED.items() if secret in text or secret in text.replace(" ", "")]


ONE = dead_letter(1).message_id
COMMANDS = [
    ("dlq", "list"),
    ("dlq", "list", "--json", "--state", "any"),
    *(
        ("dlq", "show", dead_letter(number).message_id, *more)
        for number in range(6)
        for more in ((), ("--json",))
    ),
    ("dlq", "groups"),
    ("dlq", "groups", "--json"),
    ("dlq", "archive", "--topic", "none", "--yes"),
    ("dlq", "revisions", EDITED),
    ("dlq", "revisions", EDITED, "--json"),
    ("dlq", "requests"),
    ("dlq", "requests", "--json"),
    ("replay", "list"),
    ("replay", "list", "--json"),
    ("replay", "status"),
    ("replay", "status", "--json"),
    ("alerts", "list"),
    ("alerts", "list", "--json"),
    ("audit",),
    ("audit", "--json"),
    ("health",),
    ("health", "--json"),
    ("stats",),
    ("stats", "--json"),
    ("store", "info"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_shows_a_planted_secret(store, words):
    result = CliRunner().invoke(main, [*words, "--store", str(store.path)])

    assert result.exit_code in (0, 1), result.output
    assert leaked(result.output + result.stderr) == []


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_a_masked_export_contains_no_planted_secret(store, tmp_path, name):
    arguments = [
        "dlq",
        "export",
        str(tmp_path / name),
        "--state",
        "any",
        "--masked",
        "--store",
        str(store.path),
    ]

    assert CliRunner().invoke(main, arguments).exit_code == 0
    if name.endswith("parquet"):
        from pyarrow.parquet import read_table

        rows = read_table(tmp_path / name).to_pylist()
        assert rows and leaked(repr(rows)) == []
    else:
        assert "a***@shop.example" in (tmp_path / name).read_text()
    assert [leaked(path.read_bytes().decode(errors="replace")) for path in tmp_path.iterdir()] == [[], []]


def test_a_masked_incident_bundle_contains_no_planted_secret_and_a_raw_one_all(store, tmp_path):
    span = ["--since", "1h", "--store", str(store.path)]
    for name, more in (("masked.zip", []), ("raw.zip", ["--raw", "--yes"])):
        done = CliRunner().invoke(main, ["incident", "export", "-o", str(tmp_path / name), *span, *more])
        assert done.exit_code == 0, done.output
    found = {name: bundled(tmp_path / name) for name in ("masked.zip", "raw.zip")}

    assert "a***@shop.example" in found["masked.zip"]
    assert leaked(found["masked.zip"]) == []
    assert leaked(found["raw.zip"]) == list(PLANTED)


def bundled(path):
    """Return the files of a bundle, with keys, values and headers decoded."""
    with zipfile.ZipFile(path) as archive:
        files = [archive.read(name).decode(errors="replace") for name in archive.namelist()]
    with IncidentBundle(path) as bundle:
        revisions = Editor(bundle.store).lineage(EDITED).revisions
        where, dead_letters = DeadLetterFilter(state=None), DeadLetters(bundle.store)
        ids = [one.message_id for one in dead_letters.find(where, limit=100)]
        contents = [dead_letters.get(message_id) for message_id in ids]
    assert (len(contents), len(revisions)) == (6, 1)
    contents += revisions
    bodies = [(one.key, one.value, *(part for pair in one.headers for part in pair)) for one in contents]
    bodies += [
        (one.patch.key, *(part for pair in one.patch.set_headers for part in pair), repr(one.patch.value))
        for one in revisions
    ]
    parts = [part if isinstance(part, bytes) else str(part).encode() for body in bodies for part in body]
    return " ".join([*files, *(part.decode(errors="replace") for part in parts)])


def test_reveal_shows_every_planted_secret(store):
    result = CliRunner().invoke(
        main, ["dlq", "show", dead_letter(4).message_id, "--reveal", "--store", str(store.path)]
    )

    assert leaked(result.output) == list(PLANTED)


def drawn(page):
    """Return the whole content of the page, including texts of tables and code."""
    return json.dumps(
        [str(element.proto) for element in page.main] + [str(block) for block in page._tree[0]], default=str
    )


def test_the_dashboard_and_every_dead_letter_page_show_no_planted_secret(store, monkeypatch):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(store.path)])
    page = AppTest.from_string(
        "from producer_core.dashboard.app import main\n\nmain()\n", default_timeout=60
    ).run()
    assert not page.exception
    assert "a***@shop.example" in drawn(page), "the page shows the masked text"
    assert leaked(drawn(page)) == []

    for number in range(6):
        script = (
            "from pathlib import Path\nfrom producer_core.dashboard.server.stores import open_store\nfrom producer_core.dashboard.views import dead_letter\n"
            f"dead_letter.show(Path({str(store.path)!r}), {dead_letter(number).message_id!r})\n"
        )
        inside = AppTest.from_string(script, default_timeout=60).run()
        assert not inside.exception
        assert "Dead letter details" in drawn(inside) and leaked(drawn(inside)) == []


def test_invalid_masking_rules_are_reported_and_the_page_shows_no_data(store, tmp_path, monkeypatch):
    from streamlit.testing.v1 import AppTest

    (tmp_path / "wrong.toml").write_text("patterns = ['(']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(tmp_path / "wrong.toml"))
    monkeypatch.setattr("sys.argv", ["app", str(store.path)])
    page = AppTest.from_string(
        "from producer_core.dashboard.app import main\n\nmain()\n", default_timeout=60
    ).run()

    assert not page.exception
    assert "is not valid RE2" in drawn(page) and leaked(drawn(page)) == [] and "orders" not in drawn(page)


def test_page_components_show_no_planted_secret():
    for one in map(planted, range(4)):
        assert leaked(content(one.value).text + content(one.key, key=True).text) == []
    assert (
        leaked(
            wording.alert(
                {
                    "rule": "fatal_error",
                    "since": None,
                    "severity": "critical",
                    "started_at": 0.0,
                    "advice": "",
                    "text": alert("fatal_error", "p", 0.0, text=ERROR).text,
                },
                1.0,
            )
        )
        == []
    )


def test_the_notebook_shows_no_planted_secret(store):
    seen = widget_state.moment(store)

    assert (
        leaked(
            widget_state.text(seen)
            + static_export.page(seen, "x")
            + json.dumps(seen.as_json())
            + repr(Monitor(store))
        )
        == []
    )


def test_logs_contain_no_planted_secret(caplog):
    with caplog.at_level(logging.DEBUG):
        DeadLetterQueue().add_message(
            Message("m-1", "t", "ann.lee@shop.example", VALUE, datetime.now()), ERROR
        )

        BatchSend().record_rejected(InvalidMessage(ERROR))

    assert len(caplog.records) == 2 and leaked(repr([vars(record) for record in caplog.records])) == []


def test_an_alert_is_masked_when_it_is_created(store):
    assert leaked(repr(store.rows("alerts_firing", now=time.time()))) == []
    assert "No connection to the brokers: refused card" in repr(AlertLog(store).list())


def test_the_store_keeps_unmasked_values(store):
    """Masking affects only output: a replayed dead letter must have its original bytes."""
    assert DeadLetters(store).get(ONE).error_text == ERROR
