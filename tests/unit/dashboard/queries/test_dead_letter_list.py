"""Test the dead letters page: its address, its texts, its data on a real store, and the page with hostile content."""

from __future__ import annotations

import csv
import io
import json
import time

import pytest

from producer_core.dashboard import actions, queries
from producer_core.dashboard.actions import exports
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery, dead_letter_query
from producer_core.dashboard.views import dead_letter_reads
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dlq import DeadLetterFilter, DeadLetters, PageCursor
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, exceeded_limits
from producer_core.errors import TransferError
from producer_core.events import Attempt, DeadLetter
from producer_core.kafka.classify import fingerprint
from producer_core.store import Batch, ProducerRow, Store

NOW = 1_763_700_000.0

HOSTILE = "<script>window.pwned=1</script> [click](javascript:alert(1)) $x^2$ :material/delete: **b** \x00\x1b[31m \u202egnp.exe \u200b"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


@pytest.fixture(autouse=True)
def no_cached_reads():
    dead_letter_reads.clear()
    dead_letter_reads.clusters.clear()
    dead_letter_reads.open_record.cache_clear()


def dead_letter(number, **changes):
    text = "Broker: Policy violation"
    known = {
        "message_id": f"m-{number}", "cluster_id": "c", "producer_id": "p", "topic": "payments", "key": b"k",
        "value": b'{"n": 1, "password": "hunter2"}', "headers": (("trace", b"abc"),), "partition": None,
        "timestamp_ms": None, "verdict": "rejected", "verdict_reason": "one transmission", "kind": "permanent",
        "code": "POLICY_VIOLATION", "error_text": text, "fingerprint": fingerprint("POLICY_VIOLATION", text),
        "attempts": (Attempt(NOW, "POLICY_VIOLATION", text),), "accepted_at": NOW - 1, "failed_at": NOW + number,
    }  # fmt: skip
    return DeadLetter(**{**known, **changes})


def add_runner(store):
    now = time.time()
    row = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", now - 60, now + 60, None, True, None, 3, 1, 4, 100_000, 2**27, None,
        True, "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch("p", 0, (), (), (), row))


# the address


@pytest.mark.parametrize(
    "query",
    [
        DeadLetterQuery(),
        DeadLetterQuery(DeadLetterFilter(topic="a b&c", code="_TIMED_OUT", verdict="found", state=None)),
        DeadLetterQuery(
            DeadLetterFilter(since=1.5, until=2.25, key="0x00ff", text='"quoted"', body="é", group="ab12")
        ),
        DeadLetterQuery(
            DeadLetterFilter(ids=("m-1", "m, 2"), message_id="x", cluster_id="c", producer_id="p")
        ),
        DeadLetterQuery(span="1 hour", after=PageCursor(12.5, "m-1"), dead_letter="m/2"),
    ],
)
def test_a_query_survives_a_round_trip_through_the_address(query):
    assert dead_letter_query(query.to_query()) == (query, None)


def test_an_invalid_address_shows_the_default_query_and_the_problem():
    for address in ({"state": "gone"}, {"since": "soon"}, {"after": "here"}, {"ids": "[1"}):
        query, problem = dead_letter_query(address)
        assert query == DeadLetterQuery()
        assert problem


def test_parameters_of_other_pages_are_accepted():
    assert DeadLetterQuery.from_query({"producer": "p-1"}).where.producer_id == "p-1"
    assert DeadLetterQuery.from_query({"range": "1 hour", "since": "5"}).at(NOW).since == NOW - 3600
    assert DeadLetterQuery.from_query({"range": "Custom", "since": "5", "until": "9"}).at(NOW).until == 9
    assert DeadLetterQuery.from_query({"live": "false"}) == DeadLetterQuery()


def test_a_new_filter_returns_to_the_first_page_and_keeps_the_open_dead_letter():
    query = DeadLetterQuery(after=PageCursor(1.0, "m"), dead_letter="m-1").narrowed(topic="orders")
    assert (query.after, query.dead_letter, query.where.topic) == (None, "m-1", "orders")


def test_a_live_time_range_moves_in_steps():
    query = DeadLetterQuery(span="1 hour")
    assert query.at(NOW).since == query.at(NOW + 5).since
    assert query.at(NOW).since <= NOW - 3600 < query.at(NOW).since + 60


# texts


def test_null_empty_text_json_and_bytes_are_distinguished():
    kinds = [
        dead_letter_wording.content(value).kind
        for value in (None, b"", b"null", b"plain", b'{"a": 1}', b"\xff", b"\x00a")
    ]
    assert kinds == ["null", "empty", "json", "text", "json", "bytes", "bytes"]
    assert dead_letter_wording.content(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'


def test_binary_content_is_shown_in_hexadecimal_when_revealed():
    assert dead_letter_wording.content(b"\xff\x10").text == ""
    assert dead_letter_wording.content(b"\xff\x10", reveal=True).text == "00000000  ff 10"
    assert "1,000,000 bytes in total" in dead_letter_wording.content(b"\xff" * 1_000_000, reveal=True).text


def test_secrets_are_masked_until_revealed():
    value = b'{"password": "hunter2"}'
    assert "hunter2" not in dead_letter_wording.content(value).text
    assert "hunter2" in dead_letter_wording.content(value, reveal=True).text


def test_large_values_are_not_drawn():
    large = b"x" * 10_000_000
    assert dead_letter_wording.content(large).kind == "hidden"
    assert "too long to mask" in dead_letter_wording.content(large).about
    assert len(dead_letter_wording.content(large, reveal=True).text) < 21_000
    assert len(dead_letter_wording.key_cell(large)) < 20


def test_invisible_characters_are_made_visible():
    assert dead_letter_wording.visible("a\u202eb\x00\u200b\n\t") == "a⟨U+202E⟩b⟨U+0000⟩⟨U+200B⟩\n\t"
    assert dead_letter_wording.visible_line("a\nb\tc") == "a↵b→c"
    assert len(dead_letter_wording.visible_line("x" * 10_000_000)) == 200
    assert "\x1b" not in dead_letter_wording.content(json.dumps({"k": "\x1b\u2028\u202e"}).encode()).text


def test_headers_keep_order_and_duplicates_and_distinguish_null_from_empty():
    given = (("b", b"1"), ("a", None), ("b", b""), ("a", b"null"), ("authorization", b"Bearer x"))
    assert [tuple(one) for one in dead_letter_wording.headers(given)] == [
        ("b", "text", "1"), ("a", "null", "null"), ("b", "empty", "empty"), ("a", "text", "null"),
        ("authorization", "text", "***"),
    ]  # fmt: skip


def test_a_filter_is_described_in_words():
    where = DeadLetterFilter(topic="payments", code="X", state=None, ids=("a", "b"))
    assert (
        dead_letter_wording.filtered(where, None, None)
        == "Topic payments, error X, any state, 2 messages selected by id"
    )
    assert dead_letter_wording.filtered(DeadLetterFilter(), "1 hour", None) == "Failed in the last hour"
    assert dead_letter_wording.filtered(DeadLetterFilter(), None, None) == ""


def test_a_selection_reports_other_pages_and_changed_states():
    assert dead_letter_wording.chosen(3, {"dead": 3}, 1, "dead") == "3 selected, 1 on other pages."
    assert (
        dead_letter_wording.chosen(4, {"dead": 1, "replayed": 2}, 0, "dead")
        == "4 selected. Actions skip 2 now replayed and 1 no longer in this store."
    )
    assert dead_letter_wording.chosen(2, {"dead": 1, "archived": 1}, 0, None) == "2 selected."


def test_the_totals_include_the_limits():
    text = dead_letter_wording.waiting(DeadLetterLoad(12_480, 3 << 20, NOW - 7200), DeadLetterLimits(), NOW)
    assert text.startswith(
        "12,480 dead letters pending (limit 10,000); 3.0 MiB of 256.0 MiB, oldest 2 h of 7 days."
    )
    load = DeadLetterLoad(12_480, 1, NOW - 8 * 86_400)
    text = dead_letter_wording.over(exceeded_limits(load, DeadLetterLimits(), NOW))
    assert "the limit (dlq_max_size) is 10,000" in text and "(dlq_max_age) is 7.0 days" in text
    assert text.count("Nothing is dropped") == 1
    assert dead_letter_wording.waiting(
        DeadLetterLoad(0, 0, None), DeadLetterLimits(None, None, None), NOW
    ).startswith("0 dead letters pending; 0 B.")


# data


def test_new_dead_letters_do_not_shift_the_following_pages(store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "LISTED", 2)
    DeadLetters(store).add([dead_letter(number) for number in range(5)])
    first = queries.dead_letters(store, DeadLetterFilter())
    DeadLetters(store).add([dead_letter(9)])
    second = queries.dead_letters(store, DeadLetterFilter(), after=first.next)
    assert [one.message_id for one in first.dead_letters] == ["m-4", "m-3"]
    assert [one.message_id for one in second.dead_letters] == ["m-2", "m-1"]
    assert (first.total, second.total) == (5, 6)
    assert queries.scope(store, first.seen).count == 5  # m-9 arrived after the page was read
    assert queries.scope(store, second.seen).count == 6


def test_all_groups_stay_listed_when_one_is_selected(store):
    rare = fingerprint("MSG_SIZE_TOO_LARGE", "too large")
    DeadLetters(store).add(
        [
            dead_letter(1),
            dead_letter(2),
            dead_letter(3, code="MSG_SIZE_TOO_LARGE", error_text="too large", fingerprint=rare),
        ]
    )
    found = dead_letter_queries.causes(store, DeadLetterFilter(group=rare))
    assert [group.count for group in found.groups] == [2, 1]
    assert (found.one.fingerprint, found.total, found.others) == (rare, 3, 0)
    assert found.groups[0].advice and sum(found.groups[0].trend.counts) == 2


def test_a_selected_group_is_listed_even_if_it_is_small(store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "GROUPS", 1)
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3, fingerprint="rare")])
    found = dead_letter_queries.causes(store, DeadLetterFilter(group="rare"))
    assert (len(found.groups), found.one.fingerprint, found.others) == (1, "rare", 1)


def test_all_counts_of_a_page_come_from_one_read(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    found = dead_letter_queries.snapshot(store, DeadLetterFilter(), NOW)
    assert found.page.total == found.causes.total == found.waiting.load.dead_letters == 2


def test_a_body_search_resumes_and_actions_apply_to_its_result(store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "SEARCHED", 1)
    DeadLetters(store).add(
        [dead_letter(number, value=b"needle" if number % 2 else b"hay") for number in range(6)]
    )
    where = DeadLetterFilter(body="NEEDLE")
    search = dead_letter_queries.search_bodies(store, where, NOW)
    assert (search.ids, search.complete, search.frozen) == (("m-5",), False, None)
    while not search.complete:
        search = dead_letter_queries.search_bodies(store, where, NOW, search)
    assert search.ids == ("m-5", "m-3", "m-1")
    assert (search.looked_at, search.of) == (6, 6)
    page = dead_letter_queries.found_page(store, search)
    assert queries.scope(store, page.seen).count == page.total == 3
    actions.clear(store, search.frozen)
    assert dead_letter_queries.found_page(store, search).total == 0


def test_an_empty_search_result_selects_nothing(store):
    DeadLetters(store).add([dead_letter(1)])
    search = dead_letter_queries.search_bodies(store, DeadLetterFilter(body="absent"), NOW)
    page = dead_letter_queries.found_page(store, search)
    assert (search.complete, search.frozen, page.total) == (True, None, 0)
    assert queries.scope(store, page.seen).count == 0


def test_the_counts_include_the_limits_of_the_store(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3)])
    actions.clear(store, DeadLetterFilter(ids=("m-3",)))
    found = dead_letter_queries.waiting(store, NOW)
    assert (found.load.dead_letters, found.archived, found.bounds.dead_letters) == (2, 1, 10_000)


def test_a_stamp_changes_with_the_state_and_is_none_for_an_unknown_id(store):
    DeadLetters(store).add([dead_letter(1)])
    before = dead_letter_queries.change_stamp(store, "m-1")
    actions.clear(store, DeadLetterFilter())
    assert before != dead_letter_queries.change_stamp(store, "m-1")
    assert dead_letter_queries.change_stamp(store, "m-1")[0] == "archived"
    assert dead_letter_queries.change_stamp(store, "nobody") is None


def test_a_dead_letter_shows_its_producer_name_and_acceptance_time(path, store, monkeypatch):
    row = ProducerRow(
        "p", "c", "checkout-1", "shop-3", 7, "0.1", NOW, NOW, None, True, None, 0, 0, 0, 1, 1, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch("p", 0, producer=row))
    DeadLetters(store).add(
        [dead_letter(1, accepted_at=NOW - 0.2, failed_at=NOW), dead_letter(2, producer_id="gone")]
    )
    assert (
        dead_letter_queries.producer_of(store, queries.dead_letter(store, "m-1")) == "checkout-1 (process 7)"
    )
    assert dead_letter_queries.producer_of(store, queries.dead_letter(store, "m-2")) == ""
    assert dead_letter_wording.accepted(0.2) == "accepted less than a second earlier"
    assert dead_letter_wording.accepted(5.0) == "accepted 5 s earlier"


def test_expensive_reads_are_cached_longer():
    now, read = [0.0], []

    def slow(key):
        read.append(key)
        now[0] += 0.5
        return key

    cache = dead_letter_reads.AdaptiveCache(slow, min_age=1.0, clock=lambda: now[0])
    cache("a")
    now[0] += 4.9
    cache("a")
    assert read == ["a"]
    now[0] += 0.2
    cache("a")
    cache("b")
    assert read == ["a", "a", "b"]
    cache.clear()
    cache("b")
    assert read[-1] == "b" and len(read) == 4


# exports and reveals


def test_an_export_is_masked_audited_and_free_of_formulas(store):
    DeadLetters(store).add(
        [dead_letter(1, key=b"=cmd|' /C calc'!A0", value=b'{"password": "hunter2"}'), dead_letter(2)]
    )
    file = exports.export(store, DeadLetterFilter(ids=("m-1",)), "csv", who="ada", now=NOW)
    rows = list(csv.DictReader(io.StringIO(file.content.decode("utf-8-sig"))))
    assert [row["message_id"] for row in rows] == ["m-1"]
    assert rows[0]["key"].startswith("'=")
    assert b"hunter2" not in file.content
    lines = exports.export(store, DeadLetterFilter(), "jsonl", who="ada", now=NOW).content.splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["m-1", "m-2"]
    audit = store.rows("audit_latest", limit=10)
    assert [(row["action"], row["who"], row["count"]) for row in audit] == [
        ("export", "ada", 2),
        ("export", "ada", 1),
    ]


def test_an_export_beyond_its_limit_is_rejected(store, path, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    monkeypatch.setattr(exports, "MAX_DEAD_LETTERS", 1)
    with pytest.raises(TransferError, match="has 2 dead letters; one download holds at most 1"):
        exports.export(store, DeadLetterFilter(), "csv", who="ada", now=NOW)
    monkeypatch.setattr(exports, "MAX_DEAD_LETTERS", 10)
    monkeypatch.setattr(exports, "MAX_BYTES", 10)
    with pytest.raises(TransferError, match="MiB; one download holds at most"):
        exports.export(store, DeadLetterFilter(), "jsonl", who="ada", now=NOW)
    command = exports.command(path, DeadLetterFilter(topic="a b"))
    assert command.startswith("producer-core dlq export dead-letters.parquet '--topic=a b' --store=")


def test_a_reveal_is_audited(store):
    DeadLetters(store).add([dead_letter(1)])
    assert exports.reveal(store, "m-1").ok
    assert store.rows("audit_latest", limit=1)[0]["action"] == "reveal"
    assert [event.what for event in dead_letter_queries.dead_letter_timeline(store, "m-1")][-1] == "revealed"


# the page


def page_of(path, monkeypatch, *, selected=(), **query):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(path)])
    script = f"from pathlib import Path\nfrom producer_core.dashboard.views import dead_letters\n\ndead_letters.show(Path({str(path)!r}))\n"
    page = AppTest.from_string(script, default_timeout=30)
    for name, text in query.items():
        page.query_params[name] = text
    page.session_state["dead_letters of 0"] = selected  # as if the browser had reported this selection
    page.run()
    assert not page.exception
    return page


def html_of(page):
    return " ".join(element.body for element in page.get("html"))


def test_an_empty_store_shows_that_nothing_is_pending(path, store, monkeypatch):
    page = page_of(path, monkeypatch)
    assert (
        "No matching dead letters. Messages that cannot be delivered appear here within seconds."
        in html_of(page)
    )
    assert "0 dead letters pending" in html_of(page)


def test_filters_and_address_stay_in_sync(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, topic="orders")
    assert page.selectbox(key="dead_letters_topic").value == "orders"
    assert "Topic orders" in html_of(page)
    assert page.button(key="replay").label.startswith("Replay 1")
    page.selectbox(key="dead_letters_topic").set_value("payments").run()
    assert page.query_params["topic"] in ("payments", ["payments"])
    page.selectbox(key="dead_letters_state").set_value("any").run()
    assert page.query_params["state"] in ("any", ["any"])
    page.button(key="dead_letters_all").click().run()
    assert "topic" not in page.query_params
    assert page.selectbox(key="dead_letters_topic").value is None


@pytest.mark.parametrize(
    ("name", "given", "written"),
    [
        ("text", "policy", "policy"), ("body", "needle", "needle"), ("key", "0x00ff", "0x00ff"), ("message_id", "m-1", "m-1"),
        ("group", "ab12", "ab12"), ("ids", "m-1\nm-2, m-1", "m-1,m-2"), ("cluster_id", "c", "c"),
        ("code", "POLICY_VIOLATION", "POLICY_VIOLATION"), ("verdict", "rejected", "rejected"), ("span", "1 hour", "1 hour"),
    ],
)  # fmt: skip
def test_every_filter_field_has_a_control(path, store, monkeypatch, name, given, written):
    DeadLetters(store).add([dead_letter(1)])
    page = page_of(path, monkeypatch)
    control = next(
        one
        for kind in (page.selectbox, page.text_input, page.text_area)
        for one in kind
        if one.key == f"dead_letters_{name}"
    )
    control.set_value(given).run()
    assert not page.exception
    value = page.query_params["range" if name == "span" else name]
    assert value in (written, [written])
    page.run()
    assert not page.exception


def test_a_manual_selection_ignores_later_filters(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, selected=("m-1",), topic="orders")
    assert "1 selected, 1 on other pages." in html_of(page)
    page.button(key="clear").click().run()
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-2"]


def test_show_only_these_puts_the_ids_into_the_address(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, selected=("m-1",), topic="orders", letter="m-2")
    page.button(key="dead_letters_only").click().run()
    query, problem = dead_letter_query({name: "".join(text) for name, text in page.query_params.items()})
    assert (query, problem) == (
        DeadLetterQuery(DeadLetterFilter(ids=("m-1",), state=None), dead_letter="m-2"),
        None,
    )


def test_the_details_of_a_dead_letter_are_escaped(path, store, monkeypatch):
    DeadLetters(store).add(
        [
            dead_letter(
                1, topic=HOSTILE[:60], key=HOSTILE.encode(), value=HOSTILE.encode(), error_text=HOSTILE, verdict_reason=HOSTILE,
                headers=((HOSTILE, HOSTILE.encode()), ("empty", b""), ("null", None)), code="<b>x</b>", host=HOSTILE, source=HOSTILE,
                attempts=(Attempt(NOW, "<i>", HOSTILE),),
            )
        ]
    )  # fmt: skip
    page = page_of(path, monkeypatch, letter="m-1", state="any")
    shown = html_of(page)
    assert "<script>window" not in shown and "<b>x</b>" not in shown and "<i>:" not in shown
    assert "&lt;script&gt;window.pwned=1" in shown
    assert "\u202e" not in shown and "⟨U+202E⟩" in shown
    assert "<i>empty</i>" in shown and "<i>null</i>" in shown
    assert not any("script" in part.value for part in page.markdown)


def test_the_details_report_a_dead_letter_that_was_removed(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "Dead letter details" in html_of(page)
    actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    page.run()
    assert "Archived. Restore makes it pending again." in html_of(page)
    with store.borrow(write=True) as connection:
        connection.execute("DELETE FROM dead_letters WHERE message_id = 'm-1'")
    page.run()
    assert not page.exception
    assert "This dead letter is no longer in the store." in html_of(page)


def test_export_keeps_its_position_after_a_clear(path, store, monkeypatch):
    """The browser keeps the previous element of a position until the page is complete, so Export must not move."""
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch)
    before = positions(page.main, "Export")

    page.button(key="clear").click().run()

    assert "No matching dead letters." in html_of(page)
    assert len(before) == 1 and positions(page.main, "Export") == before


def positions(block, label, path=()):
    """Return the positions of blocks with this label: their index in each enclosing block."""
    found = []
    for index, child in getattr(block, "children", {}).items():
        if label in str(getattr(child.proto, "popover", "")):
            found.append((*path, index))
        found += positions(child, label, (*path, index))
    return found


def test_unmasking_applies_to_one_dead_letter(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "hunter2" not in page.code[-1].value + page.code[0].value
    page.button(key="reveal").click().run()
    assert any("hunter2" in part.value for part in page.code)
    page.query_params["letter"] = "m-2"
    page.run()
    assert not any("hunter2" in part.value for part in page.code)


def test_the_timeline_links_to_the_replay(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1)])
    done = actions.start_replay(store, DeadLetterFilter())
    shown = html_of(page_of(path, monkeypatch, letter="m-1", state="any"))
    assert f"replays?operation={done.operation_id}" in shown.replace("&amp;", "&")


def test_archived_dead_letters_are_listed_and_restored(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    page = page_of(path, monkeypatch)
    page.button(key="dead_letters_archived").click().run()
    assert page.query_params["state"] in ("archived", ["archived"])
    next(one for one in page.button if str(one.key).startswith("restore")).click().run()
    assert DeadLetters(store).count(DeadLetterFilter()) == 2


def test_a_body_search_shows_its_progress(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1, value=b"needle"), dead_letter(2)])
    page = page_of(path, monkeypatch, body="needle")
    assert "Searched all 2: 1 found." in html_of(page)
    page = page_of(path, monkeypatch, body="nothing")
    assert "Searched all 2: 0 found." in html_of(page)
    assert page.button(key="clear").disabled


def test_the_list_pages_forward_and_back(path, store, monkeypatch):
    monkeypatch.setattr(dead_letter_queries, "LISTED", 2)
    DeadLetters(store).add([dead_letter(number) for number in range(5)])
    page = page_of(path, monkeypatch)
    page.button(key="dead_letters_older").click().run()
    page.button(key="dead_letters_older").click().run()
    assert page.button(key="dead_letters_older").disabled
    page.button(key="dead_letters_newer").click().run()
    assert "after" in page.query_params
    page.button(key="dead_letters_newest").click().run()
    assert "after" not in page.query_params
