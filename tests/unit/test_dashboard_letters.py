"""The dead letters page: its address, its words, its data on a real store, and the page with hostile dead letters in it."""

from __future__ import annotations

import csv
import io
import json
import time

import pytest

from producer_core.dashboard import actions, queries
from producer_core.dashboard.actions import exports
from producer_core.dashboard.queries import dead_letter_list as of_dead_letters
from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery, dead_letter_query
from producer_core.dashboard.views import dead_letter_reads
from producer_core.dashboard.wording import dead_letters as said
from producer_core.dlq import DeadLetterFilter, DeadLetters, PageCursor
from producer_core.dlq.limits import DeadLetterLimits, DeadLetterLoad, judge
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
def nothing_remembered():
    dead_letter_reads.again()
    dead_letter_reads.clusters.forget()
    dead_letter_reads.inside.cache_clear()


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


def runs_replays(store):
    now = time.time()
    row = ProducerRow(
        "p", "c", "shop", "host", 7, "0.1", now - 60, now + 60, None, True, None, 3, 1, 4, 100_000, 2**27, None,
        True, "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch("p", 0, (), (), (), row))


# the address


@pytest.mark.parametrize(
    "asked",
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
def test_an_address_says_everything_that_is_looked_at(asked):
    assert dead_letter_query(asked.to_query()) == (asked, None)


def test_an_address_that_makes_no_sense_shows_what_waits_and_says_why():
    for wrong in ({"state": "gone"}, {"since": "soon"}, {"after": "here"}, {"ids": "[1"}):
        asked, text = dead_letter_query(wrong)
        assert asked == DeadLetterQuery()
        assert text


def test_other_pages_names_are_understood():
    assert DeadLetterQuery.from_query({"producer": "p-1"}).where.producer_id == "p-1"
    assert DeadLetterQuery.from_query({"range": "1 hour", "since": "5"}).at(NOW).since == NOW - 3600
    assert DeadLetterQuery.from_query({"range": "Custom", "since": "5", "until": "9"}).at(NOW).until == 9
    assert DeadLetterQuery.from_query({"live": "false"}) == DeadLetterQuery()


def test_another_filter_begins_on_the_first_page_and_keeps_what_is_open():
    asked = DeadLetterQuery(after=PageCursor(1.0, "m"), dead_letter="m-1").narrowed(topic="orders")
    assert (asked.after, asked.dead_letter, asked.where.topic) == (None, "m-1", "orders")


def test_a_range_that_follows_the_clock_moves_in_steps():
    asked = DeadLetterQuery(span="1 hour")
    assert asked.at(NOW).since == asked.at(NOW + 5).since
    assert asked.at(NOW).since <= NOW - 3600 < asked.at(NOW).since + 60


# words


def test_null_empty_text_json_and_bytes_are_told_apart():
    kinds = [
        said.content(value).kind for value in (None, b"", b"null", b"plain", b'{"a": 1}', b"\xff", b"\x00a")
    ]
    assert kinds == ["null", "empty", "json", "text", "json", "bytes", "bytes"]
    assert said.content(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'


def test_bytes_that_are_no_text_are_hexadecimal_once_they_are_revealed():
    assert said.content(b"\xff\x10").text == ""
    assert said.content(b"\xff\x10", reveal=True).text == "00000000  ff 10"
    assert "1,000,000 bytes in total" in said.content(b"\xff" * 1_000_000, reveal=True).text


def test_secrets_are_masked_and_shown_only_when_revealed():
    value = b'{"password": "hunter2"}'
    assert "hunter2" not in said.content(value).text
    assert "hunter2" in said.content(value, reveal=True).text


def test_ten_megabytes_are_counted_and_not_drawn():
    large = b"x" * 10_000_000
    assert said.content(large).kind == "hidden"
    assert "too long to mask" in said.content(large).about
    assert len(said.content(large, reveal=True).text) < 21_000
    assert len(said.key_cell(large)) < 20


def test_nothing_hides_in_a_text():
    assert said.visible("a\u202eb\x00\u200b\n\t") == "a⟨U+202E⟩b⟨U+0000⟩⟨U+200B⟩\n\t"
    assert said.visible_line("a\nb\tc") == "a↵b→c"
    assert len(said.visible_line("x" * 10_000_000)) == 200
    assert "\x1b" not in said.content(json.dumps({"k": "\x1b\u2028\u202e"}).encode()).text


def test_headers_keep_their_order_and_doubles_and_null_is_not_empty():
    given = (("b", b"1"), ("a", None), ("b", b""), ("a", b"null"), ("authorization", b"Bearer x"))
    assert [tuple(one) for one in said.headers(given)] == [
        ("b", "text", "1"), ("a", "null", "null"), ("b", "empty", "empty"), ("a", "text", "null"),
        ("authorization", "text", "***"),
    ]  # fmt: skip


def test_a_filter_is_said_in_words():
    where = DeadLetterFilter(topic="payments", code="X", state=None, ids=("a", "b"))
    assert said.filtered(where, None, None) == "Topic payments, error X, any state, 2 messages selected by id"
    assert said.filtered(DeadLetterFilter(), "1 hour", None) == "Failed in the last hour"
    assert said.filtered(DeadLetterFilter(), None, None) == ""


def test_a_selection_says_what_is_elsewhere_and_what_somebody_else_changed():
    assert said.chosen(3, {"dead": 3}, 1, "dead") == "3 selected, 1 on other pages."
    assert (
        said.chosen(4, {"dead": 1, "replayed": 2}, 0, "dead")
        == "4 selected. Actions skip 2 now replayed and 1 no longer in this store."
    )
    assert said.chosen(2, {"dead": 1, "archived": 1}, 0, None) == "2 selected."


def test_the_bounds_are_said_with_what_waits():
    text = said.waiting(DeadLetterLoad(12_480, 3 << 20, NOW - 7200), DeadLetterLimits(), NOW)
    assert text.startswith(
        "12,480 dead letters pending (limit 10,000); 3.0 MiB of 256.0 MiB, oldest 2 h of 7 days."
    )
    load = DeadLetterLoad(12_480, 1, NOW - 8 * 86_400)
    told = said.over(judge(load, DeadLetterLimits(), NOW))
    assert "the bound (dlq_max_size) is 10,000" in told and "(dlq_max_age) is 7.0 days" in told
    assert told.count("Nothing is dropped") == 1
    assert said.waiting(DeadLetterLoad(0, 0, None), DeadLetterLimits(None, None, None), NOW).startswith(
        "0 dead letters pending; 0 B."
    )


# data


def test_pages_follow_each_other_and_what_dies_meanwhile_moves_nothing(store, monkeypatch):
    monkeypatch.setattr(of_dead_letters, "LISTED", 2)
    DeadLetters(store).add([dead_letter(number) for number in range(5)])
    first = queries.dead_letters(store, DeadLetterFilter())
    DeadLetters(store).add([dead_letter(9)])
    second = queries.dead_letters(store, DeadLetterFilter(), after=first.next)
    assert [one.message_id for one in first.dead_letters] == ["m-4", "m-3"]
    assert [one.message_id for one in second.dead_letters] == ["m-2", "m-1"]
    assert (first.total, second.total) == (5, 6)
    assert queries.scope(store, first.seen).count == 5  # m-9 was not there when it was offered
    assert queries.scope(store, second.seen).count == 6


def test_causes_stay_in_view_when_one_of_them_is_chosen(store):
    rare = fingerprint("MSG_SIZE_TOO_LARGE", "too large")
    DeadLetters(store).add(
        [
            dead_letter(1),
            dead_letter(2),
            dead_letter(3, code="MSG_SIZE_TOO_LARGE", error_text="too large", fingerprint=rare),
        ]
    )
    found = of_dead_letters.causes(store, DeadLetterFilter(group=rare))
    assert [group.count for group in found.groups] == [2, 1]
    assert (found.one.fingerprint, found.total, found.others) == (rare, 3, 0)
    assert found.groups[0].advice and sum(found.groups[0].trend.counts) == 2


def test_a_chosen_cause_outside_the_largest_is_shown_all_the_same(store, monkeypatch):
    monkeypatch.setattr(of_dead_letters, "GROUPS", 1)
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3, fingerprint="rare")])
    found = of_dead_letters.causes(store, DeadLetterFilter(group="rare"))
    assert (len(found.groups), found.one.fingerprint, found.others) == (1, "rare", 1)


def test_all_numbers_of_a_page_are_of_one_moment(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    found = of_dead_letters.snapshot(store, DeadLetterFilter(), NOW)
    assert found.page.total == found.causes.total == found.waiting.load.dead_letters == 2


def test_a_search_in_bodies_goes_on_where_it_ended_and_acts_on_what_it_found(store, monkeypatch):
    monkeypatch.setattr(of_dead_letters, "SEARCHED", 1)
    DeadLetters(store).add(
        [dead_letter(number, value=b"needle" if number % 2 else b"hay") for number in range(6)]
    )
    where = DeadLetterFilter(body="NEEDLE")
    search = of_dead_letters.search_bodies(store, where, NOW)
    assert (search.ids, search.complete, search.frozen) == (("m-5",), False, None)
    while not search.complete:
        search = of_dead_letters.search_bodies(store, where, NOW, search)
    assert search.ids == ("m-5", "m-3", "m-1")
    assert (search.looked_at, search.of) == (6, 6)
    page = of_dead_letters.found_page(store, search)
    assert queries.scope(store, page.seen).count == page.total == 3
    actions.clear(store, search.frozen)
    assert of_dead_letters.found_page(store, search).total == 0


def test_a_search_that_found_nothing_means_nothing_and_not_everything(store):
    DeadLetters(store).add([dead_letter(1)])
    search = of_dead_letters.search_bodies(store, DeadLetterFilter(body="absent"), NOW)
    page = of_dead_letters.found_page(store, search)
    assert (search.complete, search.frozen, page.total) == (True, None, 0)
    assert queries.scope(store, page.seen).count == 0


def test_the_bounds_are_those_that_the_store_is_set_to(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2), dead_letter(3)])
    actions.clear(store, DeadLetterFilter(ids=("m-3",)))
    found = of_dead_letters.waiting(store, NOW)
    assert (found.load.dead_letters, found.archived, found.bounds.dead_letters) == (2, 1, 10_000)


def test_a_stamp_changes_with_what_happens_and_is_none_for_what_is_gone(store):
    DeadLetters(store).add([dead_letter(1)])
    before = of_dead_letters.change_stamp(store, "m-1")
    actions.clear(store, DeadLetterFilter())
    assert before != of_dead_letters.change_stamp(store, "m-1")
    assert of_dead_letters.change_stamp(store, "m-1")[0] == "archived"
    assert of_dead_letters.change_stamp(store, "nobody") is None


def test_a_letter_names_its_producer_as_people_know_it_and_says_when_it_was_accepted(
    path, store, monkeypatch
):
    row = ProducerRow(
        "p", "c", "checkout-1", "shop-3", 7, "0.1", NOW, NOW, None, True, None, 0, 0, 0, 1, 1, None, True,
        "at_least_once", "{}",
    )  # fmt: skip
    store.append(Batch("p", 0, producer=row))
    DeadLetters(store).add(
        [dead_letter(1, accepted_at=NOW - 0.2, failed_at=NOW), dead_letter(2, producer_id="gone")]
    )
    assert of_dead_letters.producer_of(store, queries.dead_letter(store, "m-1")) == "checkout-1 (process 7)"
    assert of_dead_letters.producer_of(store, queries.dead_letter(store, "m-2")) == ""
    assert said.accepted(0.2) == "accepted less than a second earlier"
    assert said.accepted(5.0) == "accepted 5 s earlier"


def test_what_costs_much_to_read_is_read_less_often():
    now, read = [0.0], []

    def slow(key):
        read.append(key)
        now[0] += 0.5
        return key

    paced = dead_letter_reads.AdaptiveCache(slow, least=1.0, clock=lambda: now[0])
    paced("a")
    now[0] += 4.9
    paced("a")
    assert read == ["a"]
    now[0] += 0.2
    paced("a")
    paced("b")
    assert read == ["a", "a", "b"]
    paced.forget()
    paced("b")
    assert read[-1] == "b" and len(read) == 4


# acts that only look


def test_an_export_is_masked_audited_and_no_cell_is_a_formula(store):
    DeadLetters(store).add(
        [dead_letter(1, key=b"=cmd|' /C calc'!A0", value=b'{"password": "hunter2"}'), dead_letter(2)]
    )
    made = exports.export(store, DeadLetterFilter(ids=("m-1",)), "csv", who="ada", now=NOW)
    rows = list(csv.DictReader(io.StringIO(made.content.decode("utf-8-sig"))))
    assert [row["message_id"] for row in rows] == ["m-1"]
    assert rows[0]["key"].startswith("'=")
    assert b"hunter2" not in made.content
    lines = exports.export(store, DeadLetterFilter(), "jsonl", who="ada", now=NOW).content.splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["m-1", "m-2"]
    acts = store.rows("audit_latest", limit=10)
    assert [(act["action"], act["who"], act["count"]) for act in acts] == [
        ("export", "ada", 2),
        ("export", "ada", 1),
    ]


def test_an_export_beyond_its_bound_is_refused_and_names_the_command(store, path, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    monkeypatch.setattr(exports, "MOST_LETTERS", 1)
    with pytest.raises(TransferError, match="2 dead letters are more than the 1 of one download"):
        exports.export(store, DeadLetterFilter(), "csv", who="ada", now=NOW)
    monkeypatch.setattr(exports, "MOST_LETTERS", 10)
    monkeypatch.setattr(exports, "MOST_BYTES", 10)
    with pytest.raises(TransferError, match="of one download"):
        exports.export(store, DeadLetterFilter(), "jsonl", who="ada", now=NOW)
    command = exports.command(path, DeadLetterFilter(topic="a b"))
    assert command.startswith("producer-core dlq export letters.parquet '--topic=a b' --store=")


def test_a_reveal_is_written_down_first(store):
    DeadLetters(store).add([dead_letter(1)])
    assert exports.reveal(store, "m-1").ok
    assert store.rows("audit_latest", limit=1)[0]["action"] == "reveal"
    assert [moment.what for moment in of_dead_letters.dead_letter_timeline(store, "m-1")][-1] == "revealed"


# the page


def page_of(path, monkeypatch, *, chosen=(), **query):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setattr("sys.argv", ["app", str(path)])
    script = f"from pathlib import Path\nfrom producer_core.dashboard.views import dead_letters\n\ndead_letters.show(Path({str(path)!r}))\n"
    page = AppTest.from_string(script, default_timeout=30)
    for name, text in query.items():
        page.query_params[name] = text
    page.session_state["letters of 0"] = chosen  # what a browser said before
    page.run()
    assert not page.exception
    return page


def html_of(page):
    return " ".join(element.body for element in page.get("html"))


def test_an_empty_store_says_that_nothing_waits(path, store, monkeypatch):
    page = page_of(path, monkeypatch)
    assert (
        "No matching dead letters. Messages that cannot be delivered appear here within seconds."
        in html_of(page)
    )
    assert "0 dead letters pending" in html_of(page)


def test_the_address_fills_the_filters_and_a_filter_writes_the_address(path, store, monkeypatch):
    runs_replays(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, topic="orders")
    assert page.selectbox(key="letters_topic").value == "orders"
    assert "Topic orders" in html_of(page)
    assert page.button(key="replay").label.startswith("Replay 1")
    page.selectbox(key="letters_topic").set_value("payments").run()
    assert page.query_params["topic"] in ("payments", ["payments"])
    page.selectbox(key="letters_state").set_value("any").run()
    assert page.query_params["state"] in ("any", ["any"])
    page.button(key="letters_all").click().run()
    assert "topic" not in page.query_params
    assert page.selectbox(key="letters_topic").value is None


@pytest.mark.parametrize(
    ("name", "given", "written"),
    [
        ("text", "policy", "policy"), ("body", "needle", "needle"), ("key", "0x00ff", "0x00ff"), ("message_id", "m-1", "m-1"),
        ("group", "ab12", "ab12"), ("ids", "m-1\nm-2, m-1", "m-1,m-2"), ("cluster_id", "c", "c"),
        ("code", "POLICY_VIOLATION", "POLICY_VIOLATION"), ("verdict", "rejected", "rejected"), ("span", "1 hour", "1 hour"),
    ],
)  # fmt: skip
def test_every_field_of_the_filter_has_a_control(path, store, monkeypatch, name, given, written):
    DeadLetters(store).add([dead_letter(1)])
    page = page_of(path, monkeypatch)
    control = next(
        one
        for kind in (page.selectbox, page.text_input, page.text_area)
        for one in kind
        if one.key == f"letters_{name}"
    )
    control.set_value(given).run()
    assert not page.exception
    asked = page.query_params["range" if name == "span" else name]
    assert asked in (written, [written])
    page.run()
    assert not page.exception


def test_what_was_chosen_by_hand_is_meant_whatever_the_filters_say_by_now(path, store, monkeypatch):
    runs_replays(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, chosen=("m-1",), topic="orders")
    assert "1 selected, 1 on other pages." in html_of(page)
    page.button(key="clear").click().run()
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-2"]


def test_show_only_these_writes_their_ids_into_the_address(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2, topic="orders")])
    page = page_of(path, monkeypatch, chosen=("m-1",), topic="orders", letter="m-2")
    page.button(key="letters_only").click().run()
    asked, wrong = dead_letter_query({name: "".join(text) for name, text in page.query_params.items()})
    assert (asked, wrong) == (
        DeadLetterQuery(DeadLetterFilter(ids=("m-1",), state=None), dead_letter="m-2"),
        None,
    )


def test_a_letter_is_opened_by_its_address_with_everything_escaped(path, store, monkeypatch):
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


def test_a_letter_that_vanished_while_it_was_open_says_so(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "Inside the dead letter" in html_of(page)
    actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    page.run()
    assert "Archived. Restore makes it pending again." in html_of(page)
    with store.borrow(write=True) as connection:
        connection.execute("DELETE FROM dead_letters WHERE message_id = 'm-1'")
    page.run()
    assert not page.exception
    assert "This dead letter is not in the store any more." in html_of(page)


def test_export_keeps_its_place_so_that_clear_does_not_show_it_twice_for_a_moment(path, store, monkeypatch):
    """The browser keeps what stood at a place until the page is drawn to its end; Export moved to another."""
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch)
    before = places(page.main, "Export")

    page.button(key="clear").click().run()

    assert "No matching dead letters." in html_of(page)
    assert len(before) == 1 and places(page.main, "Export") == before


def places(block, label, way=()):
    """Where blocks of this label are: the index in each block around them."""
    found = []
    for index, child in getattr(block, "children", {}).items():
        if label in str(getattr(child.proto, "popover", "")):
            found.append((*way, index))
        found += places(child, label, (*way, index))
    return found


def test_unmasking_is_asked_for_and_only_for_this_letter(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "hunter2" not in page.code[-1].value + page.code[0].value
    page.button(key="letter_reveal").click().run()
    assert any("hunter2" in part.value for part in page.code)
    page.query_params["letter"] = "m-2"
    page.run()
    assert not any("hunter2" in part.value for part in page.code)


def test_a_letters_story_links_to_its_replay(path, store, monkeypatch):
    runs_replays(store)
    DeadLetters(store).add([dead_letter(1)])
    done = actions.start_replay(store, DeadLetterFilter())
    shown = html_of(page_of(path, monkeypatch, letter="m-1", state="any"))
    assert f"replays?operation={done.operation_id}" in shown.replace("&amp;", "&")


def test_archived_letters_are_named_and_can_be_restored(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    page = page_of(path, monkeypatch)
    page.button(key="letters_archived").click().run()
    assert page.query_params["state"] in ("archived", ["archived"])
    next(one for one in page.button if str(one.key).startswith("restore")).click().run()
    assert DeadLetters(store).count(DeadLetterFilter()) == 2


def test_a_search_in_bodies_says_how_far_it_looked(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1, value=b"needle"), dead_letter(2)])
    page = page_of(path, monkeypatch, body="needle")
    assert "Searched all 2: 1 found." in html_of(page)
    page = page_of(path, monkeypatch, body="nothing")
    assert "Searched all 2: 0 found." in html_of(page)
    assert page.button(key="clear").disabled


def test_pages_of_letters_go_down_and_back(path, store, monkeypatch):
    monkeypatch.setattr(of_dead_letters, "LISTED", 2)
    DeadLetters(store).add([dead_letter(number) for number in range(5)])
    page = page_of(path, monkeypatch)
    page.button(key="letters_older").click().run()
    page.button(key="letters_older").click().run()
    assert page.button(key="letters_older").disabled
    page.button(key="letters_newer").click().run()
    assert "after" in page.query_params
    page.button(key="letters_newest").click().run()
    assert "after" not in page.query_params
