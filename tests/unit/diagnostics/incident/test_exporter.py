"""A bundle has the figures of its range; a masked one has no secret and no hash of one."""

from __future__ import annotations

import json
import re
import shutil
import stat
import uuid
import zipfile
from dataclasses import fields, is_dataclass, replace

import pytest

from producer_core._internal import work_folder
from producer_core._internal.decision_objective import DecisionObjective
from producer_core._internal.masking import display_value, mask_headers, mask_text
from producer_core.dashboard import queries
from producer_core.dashboard.queries import dead_letter_list
from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.latency import latency
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.wording import CUSTOM
from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.diagnostics.incident import IncidentBundle, export_incident, exporter, table_lines
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.approvals.requests import list_requests
from producer_core.dlq.codec import read_headers
from producer_core.dlq.files.record import displayed, record_of
from producer_core.dlq.objectives import decisions, set_objective
from producer_core.dlq.resolve_cause import resolve_cause
from producer_core.dlq.revisions.editor import Editor
from producer_core.dlq.revisions.patch import Patch
from producer_core.dlq.revisions.revision_text import change_lines
from producer_core.errors import ConfigError, StoreUnavailable, TransferError
from producer_core.events import SAFE_VERDICTS
from producer_core.replay.planner import plan
from producer_core.store import Batch, Store
from producer_core.store.removed_clusters import removed_clusters
from producer_core.store.resolved_causes import cause_statuses
from tests.fixtures import incidents, pages
from tests.unit.diagnostics.incident.conftest import WHO

ANY = DeadLetterFilter(state=None)


@pytest.fixture
def opened(masked):
    with IncidentBundle(masked) as bundle:
        yield bundle


def view_of(window):
    return View(CUSTOM, start=int(window.since), end=int(window.until))


def without_groups(value):
    """Replace each fingerprint by a fixed text: a masked bundle has other ones for error texts with a masked part."""
    if is_dataclass(value):
        changed = {field.name: without_groups(getattr(value, field.name)) for field in fields(value)}
        changed |= {"fingerprint": "-"} if "fingerprint" in changed else {}
        changed |= {"note": mask_text(changed["note"])} if "note" in changed else {}
        return type(value).__name__, changed
    if isinstance(value, tuple | list):
        return [without_groups(item) for item in value]
    if isinstance(value, dict):
        return {name: without_groups(item) for name, item in value.items() if name != "fingerprint"}
    if isinstance(value, float):
        return round(value, 9)  # sums of floats depend on the order of the rows
    return re.sub(_REPLACED, "-", value) if isinstance(value, str) else value


_REPLACED = r"\b([0-9a-f]{8}-[0-9a-f]{4}-[58][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{12})\b"


def test_the_overview_of_a_bundle_has_the_figures_of_the_live_page(store, opened, window):
    now, view = window.until + 60, view_of(window)
    live, found = (queries.overview(one, view, now) for one in (store, opened.store))
    assert live.sums.dead == 20
    assert live.before.dead == 2
    for name in ("sums", "before", "series", "percentiles", "dead_by_code", "topics", "since", "step"):
        assert without_groups(getattr(found, name)) == without_groups(getattr(live, name)), name


def test_the_errors_page_of_a_bundle_has_the_figures_of_the_live_page(store, opened, window):
    now, view = window.until + 60, view_of(window)
    live, found = (errors(one, view, now) for one in (store, opened.store))
    assert live.compares and live.detects_new
    assert {line.code: line.new for line in live.codes} == {"POLICY_VIOLATION": False, "_FAIL": True}
    begins = {"begins": None, "seen_at": None, "groups": ()}
    assert without_groups(replace(found, **begins)) == without_groups(replace(live, **begins))
    assert (found.begins, found.compares) == (live.begins, live.compares)
    assert [group.group.count for group in found.groups] == [group.group.count for group in live.groups]


def test_the_latency_page_of_a_bundle_has_the_figures_of_the_live_page(store, opened, window):
    now, view = window.until + 60, view_of(window)
    live, found = (latency(one, view, now) for one in (store, opened.store))
    assert live.has_client_stats and live.found[0]
    assert without_groups(replace(found, seen_at=None)) == without_groups(replace(live, seen_at=None))


def test_the_dead_letters_of_a_bundle_are_those_of_the_range(store, opened, window):
    where = DeadLetterFilter(state=None, since=window.since, until=window.until)
    live, found = (dead_letter_list.snapshot(one, where, window.until + 60) for one in (store, opened.store))
    assert live.page.total == found.page.total == 20
    assert found.page.verdicts == live.page.verdicts
    ids = [[without_groups(one.message_id) for one in page.page.dead_letters] for page in (live, found)]
    assert ids[0] == ids[1]
    assert sorted(group.count for group in found.causes.groups) == sorted(
        group.count for group in live.causes.groups
    )
    for column in ("state", "code", "topic", "kind"):
        assert DeadLetters(opened.store).count_by(where, column) == DeadLetters(store).count_by(where, column)


def test_a_bundle_has_alerts_and_actions_of_its_range_only(opened):
    alerts = opened.store.rows("alerts_list", now=0.0, limit=10)
    assert sorted((alert["subject"], alert["acknowledged_by"]) for alert in alerts) == [
        ("a***@analytical.example", "ann@host"),
        ("payments", "ann@host"),
    ]
    assert {row["action"] for row in opened.store.rows("audit_latest")} == {
        *(
            "acknowledge",
            "archive",
            "export",
            "import",
            "edit",
            "request",
            "request_approve",
            "resolve",
            "set",
        )
    }


def content_of(bundle):
    """Return all bytes of a bundle: of the zip file, of each file in it, and of each value of its store."""
    with zipfile.ZipFile(bundle.path) as archive:
        files = [archive.read(name) for name in archive.namelist()]
    with bundle.store.borrow() as connection:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
        values = [
            value
            for (table,) in tables
            for row in connection.execute(f'SELECT * FROM "{table}"').fetchall()
            for value in row
        ]
        bodies = connection.execute(
            "SELECT headers FROM dead_letter_bodies UNION ALL SELECT headers FROM dead_letter_revisions"
        ).fetchall()
        patches = connection.execute("SELECT patch FROM dead_letter_revisions").fetchall()
    values += [part for (headers,) in bodies for pair in read_headers(headers) for part in pair]
    values += [part for (patch,) in patches for pair in Patch.from_json(patch).set_headers for part in pair]
    texts = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    return b"\0".join([bundle.path.read_bytes(), *files, *texts])


def test_no_masked_value_and_no_hash_of_one_is_in_a_masked_bundle(opened):
    content = content_of(opened)
    assert b"POLICY_VIOLATION" in content  # uncompressed, so that a secret would be found
    for secret in incidents.SECRETS:
        assert secret.encode() not in content, secret
        assert not [one for one in incidents.hashes_of(secret) if one in content], secret


def test_no_name_of_a_person_whose_address_is_masked_and_no_hash_of_a_request_is_in_a_masked_bundle(opened):
    content = content_of(opened)
    for one in (incidents.REQUESTER_NAME, incidents.PLAN_HASH, incidents.CONTENT_HASH):
        assert one.encode() not in content, one


def test_the_edits_of_a_bundle_are_described_as_on_the_live_page(store, opened):
    edited = incidents.message_id(incidents.EDITED)
    (live,), (found,) = (Editor(one).lineage(edited).revisions for one in (store, opened.store))
    assert change_lines(live.patch) == change_lines(found.patch)
    assert 'password → "***"' in change_lines(found.patch)
    assert (found.number, found.made_at, found.who) == (live.number, live.made_at, "e***@invariant.example")
    assert display_value(found.value) == display_value(live.value)
    assert mask_headers(found.headers) == mask_headers(live.headers)
    assert found.reason == "Asked by b***@roulette.example"


def test_the_drafts_and_the_policy_of_a_store_are_not_in_a_raw_bundle(raw):
    with zipfile.ZipFile(raw) as archive:
        names = archive.namelist()
    assert "tables/dead_letter_revisions.jsonl" in names
    assert not {
        f"tables/{table}.jsonl" for table in ("edit_drafts", "approval_policies", "replay_starts")
    } & {*names}


def test_the_requests_of_a_bundle_have_their_life(store, opened):
    (live,), (found,) = (list_requests(one) for one in (store, opened.store))
    names = (
        "request_id",
        "operation_id",
        "state",
        "records",
        "by_topic",
        "choices",
        "requested_at",
        "decided_at",
    )
    assert [getattr(found, name) for name in names] == [getattr(live, name) for name in names]
    assert (found.who, found.decided_by) == ("e***@invariant.example", "grace")
    assert found.approver == "grace" and found.decision == "checked with b***@roulette.example"
    audited = [row for row in opened.store.rows("audit_latest") if row["action"] == "request"]
    assert f"[request {found.request_id}]" in audited[0]["outcome"]


def test_a_resolved_cause_of_a_bundle_is_back_since_the_same_failure(store, opened):
    (live,), (found,) = (cause_statuses(one).values() for one in (store, opened.store))
    assert live.is_back and (found.present.back_at, found.count) == (live.present.back_at, live.count)
    assert found.fingerprint in {
        group.fingerprint for group in DeadLetters(opened.store).groups(ANY, limit=10)
    }


def test_a_cause_that_came_back_before_the_range_is_back_since_then(store, window, tmp_path):
    """The first failure is in no row of the bundle."""
    early, late = window.since - 50_000, window.since + 300
    failed = [
        incidents.dead_letter(number, failed_at=at, code="EARLY", application_version=version)
        for number, at, version in ((50, early - 10, "1"), (51, early, "2"), (52, late, "3"))
    ]
    DeadLetters(store).add(failed)
    cause = failed[0].fingerprint
    resolve_cause(store, cause, now=early - 5, **WHO)
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        found = cause_statuses(bundle.store)[cause].present
    assert (found.back_at, found.back_in) == (early, "2")


def test_the_time_to_decision_of_a_bundle_is_that_of_the_live_page(store, window, tmp_path):
    """A dead letter whose deadline is in the range failed long before it."""
    within = 86_400.0
    set_objective(store, "refunds", DecisionObjective(90, within), **WHO)
    early = incidents.dead_letter(60, failed_at=window.since - within + 100, topic="refunds")
    DeadLetters(store).add([early])
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    span = {"since": window.since, "until": window.until}
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        found = decisions(bundle.store, window.until, **span)
    assert found == decisions(store, window.until, **span)
    assert [(one.topic, one.evaluated, one.missed) for one in found] == [
        ("payments", 15, 12),
        ("refunds", 1, 1),
    ]


def test_objectives_name_masked_topics_as_the_other_tables_do(store, window, tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("patterns = ['payments|orders']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        (found,) = decisions(bundle.store, window.until, since=window.since, until=window.until)
        (request,) = list_requests(bundle.store)
    assert found.topic.startswith("***") and found.objective == DecisionObjective(95, 2400.0)
    assert request.by_topic == {found.topic: 3}


def test_clusters_of_a_bundle_are_those_of_its_export(store, window, tmp_path):
    """The producers of an embedded broker send no heartbeats to a bundle."""
    now = window.until
    store.append(Batch("e", 0, (), (), (), pages.producer("e", now, cluster_id="embedded-1")))
    DeadLetters(store).add([incidents.dead_letter(70, failed_at=now - 10, cluster_id="embedded-1")])
    export_incident(store, tmp_path / "a.zip", window, clock=lambda: now + 5, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        assert removed_clusters(store, now + 5) == removed_clusters(bundle.store, now + 1e6) == ()


def test_no_part_of_a_secret_that_an_operator_searched_is_in_a_masked_bundle(opened):
    content = content_of(opened)
    for term in (incidents.PART, incidents.KEY.hex(), incidents.ERROR[7:30]):
        assert term.encode() not in content, term


def test_no_id_that_is_a_hash_of_contents_is_in_a_masked_bundle(template, opened, window):
    hashes = incidents.exported_hashes(Store.open(template / "store.duckdb"))
    assert len(hashes) == 4
    content = content_of(opened)
    for one in (*incidents.REVEALING_IDS, *hashes, incidents.alert_id_of_secret(window.since)):
        assert one.encode() not in content, one


def test_the_same_searches_find_all_of_it_in_a_raw_bundle(template, raw, window):
    with IncidentBundle(raw) as bundle:
        content = content_of(bundle)
    for secret in (*incidents.SECRETS, incidents.PART, *incidents.REVEALING_IDS):
        assert secret.encode() in content, secret
    assert any(one in content for one in incidents.hashes_of(incidents.ERROR))
    for one in incidents.exported_hashes(Store.open(template / "store.duckdb")):
        assert one.encode() in content
    assert incidents.alert_id_of_secret(window.since).encode() in content


def test_replaced_ids_are_equal_in_all_tables(opened):
    """Rows that belong together stay together."""
    with opened.store.borrow() as connection:
        (message_id,), *_ = connection.execute(
            "SELECT message_id FROM dead_letters WHERE message_id LIKE '%-16'"
        ).fetchall()
        bodies = connection.execute(
            "SELECT count(*) FROM dead_letters JOIN dead_letter_bodies USING (message_id)"
        ).fetchall()
        ids = connection.execute("SELECT alert_id, subject FROM alerts ORDER BY subject").fetchall()
        producer = connection.execute(
            "SELECT producer_id FROM dead_letters WHERE message_id = ?", [message_id]
        ).fetchall()
        text, details = connection.execute("SELECT text, details FROM notices").fetchall()[0]
    session, _, number = message_id.rpartition("-")
    assert (number, uuid.UUID(session).version) == ("16", 8)
    assert bodies == [(22,)]
    assert producer == [(session,)] and session in text
    send_id = json.loads(details)["transactional_id"]
    assert send_id in text and re.fullmatch(r"producer-core-send-[0-9a-f]{24}", send_id)
    audited = {
        json.loads(row["selection"])["alert_id"]
        for row in opened.store.rows("audit_latest")
        if row["action"] == "acknowledge"
    }
    assert audited == {alert_id for alert_id, _ in ids} and len(ids) == 2


def test_names_with_the_same_masked_form_stay_separate(store, window, tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("patterns = ['payments|orders']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        live, found = (
            queries.overview(one, view_of(window), window.until + 60) for one in (store, bundle.store)
        )
    assert sorted(topic.topic for topic in found.topics) == ["***", "*** (2)"]
    sums = [[topic.acknowledged for topic in one.topics] for one in (live, found)]
    assert sums[0] == sums[1] and len({*sums[0]}) == 2


def test_the_small_hash_of_a_key_is_not_in_a_masked_bundle(store, opened):
    marks = "SELECT count(key_mark) FROM dead_letters"
    with store.borrow() as live, opened.store.borrow() as connection:
        assert live.execute(marks).fetchall() == [(22,)]
        assert connection.execute(marks).fetchall() == [(0,)]


def test_a_masked_dead_letter_is_displayed_as_before(store, opened):
    def shown(one):
        with one.borrow() as connection:
            row = connection.execute(
                "SELECT * FROM dead_letters WHERE code = 'POLICY_VIOLATION' AND failed_at = ("
                "SELECT min(failed_at) FROM dead_letters WHERE key <> 'k'::BLOB)"
            )
            names = [column[0] for column in row.description]
            letter = dict(zip(names, row.fetchone(), strict=True))
            body = connection.execute(
                "SELECT * FROM dead_letter_bodies WHERE message_id = ?", [letter["message_id"]]
            )
            names = [column[0] for column in body.description]
            record = displayed(record_of(letter, dict(zip(names, body.fetchone(), strict=True))))
        return {name: record[name] for name in ("key", "value", "headers", "attempts", "value_size")}

    live = shown(store)
    assert live["value"]["password"] == "***"
    assert shown(opened.store) == live


def test_the_store_of_a_bundle_cannot_be_changed(opened):
    assert opened.store.is_incident
    dead_letters = DeadLetters(opened.store)
    with pytest.raises(StoreUnavailable, match="read-only"):
        dead_letters.archive(DeadLetterFilter(), who="ann", origin="cli")
    with pytest.raises(StoreUnavailable, match="read-only"):
        opened.store.set_setting("keep_seconds", 1)
    with pytest.raises(StoreUnavailable, match="read-only"):
        opened.store.compact()
    assert opened.store.prune(0.0) == 0


def tables_of(store):
    with store.borrow() as connection:
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        ).fetchall()
        return {
            table: sorted(map(repr, connection.execute(f'SELECT * FROM "{table}"').fetchall()))
            for (table,) in tables
        }


def test_the_export_changes_nothing_in_the_live_store_but_its_audit_log(store, window, tmp_path):
    before = tables_of(store)
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    after = tables_of(store)
    assert len(after.pop("audit")) == len(before.pop("audit")) + 1
    assert after == before


def test_a_raw_export_is_audited_as_its_own_action_and_revokes_safe_verdicts(store, raw, window):
    (entry,) = (row for row in store.rows("audit_latest") if row["action"] == "incident_raw")
    assert (entry["who"], entry["count"]) == ("ann@host", 22)
    assert str(raw) in entry["selection"]
    assert entry["outcome"].startswith("Raw incident bundle")
    in_range = DeadLetterFilter(since=window.since, until=window.until)
    pending = DeadLetters(store).count_by(in_range, "verdict")
    assert pending and not {*SAFE_VERDICTS} & {*pending}


def test_a_masked_export_revokes_no_verdict_and_has_its_own_action(store, window, tmp_path):
    before = DeadLetters(store).count_by(ANY, "verdict")
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    assert {*SAFE_VERDICTS} & {*before} and DeadLetters(store).count_by(ANY, "verdict") == before
    assert "incident" in {row["action"] for row in store.rows("audit_latest")}


def test_a_raw_export_is_refused_while_a_replay_is_running(store, window, tmp_path):
    plan(store, DeadLetterFilter(), who="ann", origin="cli", can_run="c")
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET state = 'running'")
    with pytest.raises(TransferError, match="1 replay of this store is running"):
        export_incident(store, tmp_path / "a.zip", window, raw=True, **WHO)
    export_incident(store, tmp_path / "a.zip", window, **WHO)


@pytest.mark.parametrize("kind", ["masked", "raw"])
def test_a_bundle_is_readable_for_its_owner_only(kind, request):
    path = request.getfixturevalue(kind)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_page_opens_without_other_files_and_has_the_figures(masked, window):
    with zipfile.ZipFile(masked) as archive:
        page = archive.read("index.html").decode()
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert "default-src 'none'" in page
    for text in ("payments", "POLICY_VIOLATION", "error_rate", "ann@host", "archive", "shop"):
        assert text in page, text
    for text in (
        "95% within 40 min",
        "back since",
        incidents.REQUEST,
        "approved",
        "checked with b***@",
        "amount → 7",
    ):
        assert text in page, text


def test_settings_have_no_secret_and_doctor_findings_are_included(store, window, tmp_path):
    findings = [DoctorFinding("disk", "warning", f"Mail {incidents.EMAIL}", "Free space.")]
    export_incident(store, tmp_path / "a.zip", window, findings=findings, **WHO)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        doctor, settings = archive.read("doctor.json").decode(), archive.read("settings.json").decode()
        page = archive.read("index.html").decode()
    assert "Free space." in doctor and "Free space." in page
    assert incidents.EMAIL not in doctor + page
    assert "kafka:9092" in settings and '"sasl.password": "***"' in settings


@pytest.mark.parametrize(
    ("name", "problem"),
    [("a.txt", "not a zip file"), ("missing/a.zip", "does not exist"), ("old.zip", "already exists")],
)
def test_an_invalid_target_is_refused(store, window, tmp_path, name, problem):
    (tmp_path / "old.zip").write_text("old")
    with pytest.raises(TransferError, match=problem):
        export_incident(store, tmp_path / name, window, **WHO)
    assert (tmp_path / "old.zip").read_text() == "old"


def test_a_failed_export_leaves_no_file_and_is_audited(store, window, tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("patterns = ['(']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    with pytest.raises(ConfigError):
        export_incident(store, tmp_path / "a.zip", window, **WHO)
    assert not list(tmp_path.glob("*a.zip*"))
    assert any(row["outcome"].startswith("Failed") for row in store.rows("audit_latest"))


def test_rules_of_the_masking_file_apply(store, window, tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("names = ['note']\nhide = ['keys']\npatterns = ['payments']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        found = DeadLetters(bundle.store).find(ANY, limit=100)
        content = content_of(bundle)
    assert {one.key for one in found} == {b"***"}
    assert {one.topic for one in found} == {"***"}
    assert b"payments" not in content


def test_a_bundle_cannot_be_exported_again(opened, window, tmp_path):
    with pytest.raises(StoreUnavailable, match="read-only"):
        export_incident(opened.store, tmp_path / "a.zip", window, **WHO)
    assert not (tmp_path / "a.zip").exists()


def test_an_empty_store_can_be_exported(window, tmp_path):
    export_incident(Store.open(tmp_path / "empty.duckdb"), tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle:
        assert queries.overview(bundle.store, view_of(window), window.until + 60).sums.accepted == 0


def test_the_manifest_says_which_rules_masked_the_bundle(masked, store, window, tmp_path, monkeypatch):
    rules = tmp_path / "masking.toml"
    rules.write_text("names = ['note']")
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(rules))
    found = export_incident(store, tmp_path / "a.zip", window, **WHO)
    assert found.masking == str(rules)
    monkeypatch.delenv("PRODUCER_CORE_MASKING")
    with IncidentBundle(masked) as bundle:
        assert bundle.manifest.masking == exporter.BUILT_IN


def test_an_export_without_room_changes_nothing(store, window, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=work_folder.RESERVE + 1000))
    with pytest.raises(TransferError, match="bytes free"):
        export_incident(store, tmp_path / "a.zip", window, **WHO)
    assert not list(tmp_path.glob("*.zip*")) and not leftovers(tmp_path)


def test_a_file_that_appears_during_the_export_is_not_replaced(store, window, tmp_path):
    target = tmp_path / "a.zip"

    def clock():
        """Write the file when the export has checked its target."""
        target.write_text("another")
        return window.until

    with pytest.raises(TransferError, match="already exists"):
        export_incident(store, target, window, clock=clock, **WHO)
    assert target.read_text() == "another"
    export_incident(store, target, window, clock=clock, overwrite=True, **WHO)
    with IncidentBundle(target) as bundle:
        bundle.verify()


def leftovers(folder):
    return [*folder.glob(f"{work_folder.PREFIX}*")]


def test_an_export_leaves_no_work_folder(store, masked, window, tmp_path):
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    assert not leftovers(tmp_path) and not leftovers(masked.parent.parent)


@pytest.mark.parametrize("raw", [False, True])
def test_a_large_body_is_left_out_with_its_size(store, window, tmp_path, monkeypatch, raw):
    monkeypatch.setattr(table_lines, "MAX_BLOB", 50)
    export_incident(store, tmp_path / "a.zip", window, raw=raw, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle, bundle.store.borrow() as connection:
        longest = connection.execute("SELECT max(octet_length(value)) FROM dead_letter_bodies").fetchall()
        assert longest[0][0] < 50


def test_damaged_headers_of_one_dead_letter_hide_only_its_body(store, window, tmp_path):
    with store.borrow(write=True) as connection:
        connection.execute(
            "UPDATE dead_letter_bodies SET headers = 'no JSON', value = 'secret' WHERE message_id LIKE '%-16'"
        )
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle, bundle.store.borrow() as connection:
        found = connection.execute(
            "SELECT value, headers FROM dead_letter_bodies WHERE message_id LIKE '%-16'"
        ).fetchall()
        assert found == [(b"***", "[]")]


def test_a_masked_key_has_no_place_on_its_topic(store, window, tmp_path):
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET landed_partition = 3, landed_offset = 7")
    export_incident(store, tmp_path / "a.zip", window, **WHO)
    with IncidentBundle(tmp_path / "a.zip") as bundle, bundle.store.borrow() as connection:
        found = connection.execute(
            "SELECT key = 'k'::BLOB, landed_partition, landed_offset, count(*) FROM dead_letters GROUP BY ALL"
        ).fetchall()
    assert sorted(found, key=str) == [(False, None, None, 1), (True, 3, 7, 21)]
