"""Looking at dead letters: by pages, into bodies, and by a filter that a URL and a command line carry."""

from __future__ import annotations

import json
from importlib.resources import files

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.cli.dlq import filter_options
from producer_core.dlq import DeadLetterFilter, DeadLetterQueue, DeadLetters, PageCursor, search
from producer_core.dlq.filter import command_options
from producer_core.errors import ConfigError
from producer_core.store import Store
from tests.fixtures.dead_letters import NOW, dead_letter

ANY = DeadLetterFilter(state=None)
PEOPLE = {"who": "me", "origin": "python"}


@pytest.fixture
def dead_letters(tmp_path):
    return DeadLetters(Store.open(tmp_path / "store.duckdb"), clock=lambda: NOW + 1000)


# a filter is one value


words = st.text(max_size=8) | st.sampled_from(
    ['"', '""', '"a"', "any", "0x", "0xff", "[", "a,b", "-x", "--", "@1"]
)
names = st.text(max_size=8) | st.sampled_from(["a,b", "[", '"', " ", ""])
times = st.none() | st.floats(allow_nan=False, allow_infinity=False)
filters = st.builds(
    DeadLetterFilter,
    topic=st.none() | words,
    group=st.none() | words,
    code=st.none() | words,
    verdict=st.none() | st.sampled_from(filter_options.VERDICTS),
    state=st.none() | st.sampled_from(["dead", "replaying", "replayed", "landed", "archived", "purged"]),
    since=times,
    until=times,
    key=st.none() | words,
    message_id=st.none() | words,
    text=st.none() | words.filter(bool),
    cluster_id=st.none() | words,
    producer_id=st.none() | words,
    ids=st.lists(names, max_size=3).map(tuple),
    body=st.none() | words.filter(bool),
)


@given(filters)
def test_a_filter_with_anything_in_it_goes_to_a_url_and_back(where):
    query = where.to_query()
    assert all(query.values())
    assert DeadLetterFilter.from_query(query) == where


@given(filters)
@settings(deadline=None)
def test_a_filter_with_anything_in_it_goes_to_a_command_line_and_back(where):
    seen = []

    @click.command()
    @filter_options.filter_and_state_options
    def command(**given):
        seen.append(filter_options.chosen(given))

    outcome = CliRunner().invoke(command, command_options(where))
    assert outcome.exit_code == 0, outcome.output
    assert seen == [where]


@pytest.mark.parametrize("query", [{"ids": "[1"}, {"topic": '"a"b"'}, {"since": "inf"}, {"until": "nan"}])
def test_what_no_filter_wrote_is_a_mistake_that_is_said(query):
    with pytest.raises(ConfigError):
        DeadLetterFilter.from_query(query)


def test_a_key_is_text_or_any_bytes_in_hexadecimal(dead_letters):
    dead_letters.add(
        [
            dead_letter(1, key=b"\xff\x00"),
            dead_letter(2, key=b""),
            dead_letter(3, key=None),
            dead_letter(4, key=b"0x4"),
        ]
    )
    found = {
        key: ids(dead_letters.find(DeadLetterFilter(key=key)))
        for key in ("0xff00", "0xFF00", "0x", "", "0x4")
    }
    assert found == {"0xff00": ["m-1"], "0xFF00": ["m-1"], "0x": ["m-2"], "": ["m-2"], "0x4": ["m-4"]}


def test_a_key_has_the_same_mark_in_a_store_that_was_made_before_there_were_marks(dead_letters):
    dead_letters.add([dead_letter(1, key=b"k"), dead_letter(2, key=None), dead_letter(3, key=b"\x00\xff")])
    again = "(md5_number_lower(key) & 4294967295)::UINTEGER"  # the migration's words
    with dead_letters._store.borrow() as connection:
        rows = connection.execute(
            f"SELECT key_mark, {again} FROM dead_letters ORDER BY message_id"
        ).fetchall()
    assert [one for one, _ in rows] == [other for _, other in rows]
    assert rows[1] == (None, None)
    assert again in (files("producer_core.store") / "sql" / "0005_dead_letter_counts.sql").read_text()


# pages


def ids(found):
    return [one.message_id for one in found]


def test_pages_are_the_listing_in_pieces_even_where_all_died_at_once(dead_letters):
    dead_letters.add([dead_letter(number, failed_at=NOW + number // 7) for number in range(40)])

    pages, after = [], None
    while True:
        page = dead_letters.page(DeadLetterFilter(), limit=6, after=after)
        pages.append(ids(page.dead_letters))
        if (after := page.next) is None:
            break
        after = PageCursor.parse(str(after))

    assert [one for page in pages for one in page] == ids(dead_letters.find(DeadLetterFilter(), limit=100))
    assert [len(page) for page in pages] == [6] * 6 + [4]


def test_a_letter_that_dies_while_pages_are_turned_moves_nothing(dead_letters):
    dead_letters.add([dead_letter(number) for number in range(10)])
    first = dead_letters.page(DeadLetterFilter(), limit=5)
    dead_letters.add([dead_letter(99)])
    second = dead_letters.page(DeadLetterFilter(), limit=5, after=first.next)
    assert ids(first.dead_letters + second.dead_letters) == [f"m-{number}" for number in range(9, -1, -1)]


def test_a_cursor_that_nobody_wrote_is_a_mistake_that_is_said():
    with pytest.raises(ConfigError):
        PageCursor.parse("yesterday")


# bodies


BODIES = [
    dead_letter(1, value=b'{"name":"Ada"}'),
    dead_letter(2, value=b"\x00\xff\xfe" * 5),
    dead_letter(3, value=None, key="schlüssel".encode()),
    dead_letter(4, value=b"", headers=(("Trace", b"AbC"), ("empty", None))),
    dead_letter(5, value=b"x" * 10_000_000 + b"the end"),
]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ada", ["m-1"]),
        ("ADA", ["m-1"]),
        ("0xfffe00", ["m-2"]),
        ("0x00fffe", ["m-2"]),
        ("schlüssel", ["m-3"]),
        ("trace", ["m-4"]),
        ("abc", ["m-4"]),
        ("0x416243", ["m-4"]),
        ("0x616263", []),
        ("THE END", ["m-5"]),
        ("nowhere", []),
    ],
)
def test_a_body_is_looked_for_in_value_key_and_headers(dead_letters, body, expected):
    dead_letters.add(BODIES)
    memory = DeadLetterQueue()
    for one in BODIES:
        memory.add(one)

    found = dead_letters.search(DeadLetterFilter(body=body))

    assert ids(found.dead_letters) == expected
    assert (found.complete, found.looked_at, found.of) == (True, 5, 5)
    assert ids(memory.find(DeadLetterFilter(body=body))) == expected


def test_a_search_says_how_far_it_looked_and_goes_on_there(dead_letters):
    dead_letters.add(
        [dead_letter(number, value=b"needle" if number in (2, 17) else b"hay") for number in range(20)]
    )
    where = DeadLetterFilter(body="needle")

    first = dead_letters.search(where, dead_letters=10)
    second = dead_letters.search(where, after=first.next)

    assert (ids(first.dead_letters), first.looked_at, first.of, first.complete) == (["m-17"], 10, 20, False)
    assert first.text == (
        "Looked at 10 of 20, the latest first, back to 2027-01-15 08:00:10 UTC: 1 found so far."
    )
    assert (ids(second.dead_letters), second.looked_at) == (["m-2"], 10)


def test_a_search_ends_when_its_time_is_over_or_enough_is_found(dead_letters, monkeypatch):
    monkeypatch.setattr(search, "_AT_ONCE", 4)
    dead_letters.add([dead_letter(number) for number in range(20)])

    hurried = dead_letters.search(DeadLetterFilter(body="nowhere"), seconds=-1)
    content = dead_letters.search(DeadLetterFilter(body="key"), limit=3)

    assert (hurried.looked_at, hurried.complete) == (4, False)
    assert (ids(content.dead_letters), content.looked_at, content.complete) == (
        ["m-19", "m-18", "m-17"],
        3,
        False,
    )


def test_an_act_on_a_body_is_about_exactly_what_a_complete_search_found(dead_letters):
    dead_letters.add(
        [dead_letter(1, value=b"needle"), dead_letter(2, value=b"hay"), dead_letter(3, key=b"needle")]
    )
    where = DeadLetterFilter(body="needle")

    assert dead_letters.count(where) == 2
    assert dead_letters.count_by(where, "state") == {"dead": 2}
    assert [group.count for group in dead_letters.groups(where)] == [2]
    assert dead_letters.ids(where) == ["m-1", "m-3"]
    frozen = dead_letters.frozen(where)
    assert (frozen.ids, frozen.body, frozen.state) == (("m-3", "m-1"), None, "dead")
    assert dead_letters.archive(where, **PEOPLE).count == 2
    assert dead_letters.archive(where, **PEOPLE).count == 0
    assert dead_letters.get("m-2").state == "dead"
    assert dead_letters.restore(where, **PEOPLE).count == 2
    assert dead_letters.archive(DeadLetterFilter(), **PEOPLE).count == 3
    archived = DeadLetterFilter(state="archived", body="needle")
    phrase = dead_letters.purge_phrase(archived, min_age=-60)
    assert phrase == "purge 2"
    assert dead_letters.purge(archived, **PEOPLE, confirmation=phrase, min_age=-60).count == 2


def test_a_body_that_nothing_has_selects_nothing_and_not_everything(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(2)])
    assert dead_letters.count(DeadLetterFilter(body="nowhere")) == 0
    assert dead_letters.archive(DeadLetterFilter(body="nowhere"), **PEOPLE).count == 0


def test_an_act_on_a_body_is_refused_when_the_search_did_not_see_everything(dead_letters, monkeypatch):
    dead_letters.add([dead_letter(number) for number in range(20)])
    monkeypatch.setattr(search, "MOST_IDS", 3)
    with pytest.raises(ConfigError, match=r"Nothing was changed.*Looked at 3 of 20.*Narrow the selection"):
        dead_letters.archive(DeadLetterFilter(body="key"), **PEOPLE)
    assert dead_letters.count(DeadLetterFilter()) == 20


def test_a_filter_with_a_body_is_no_condition_that_somebody_could_forget():
    with pytest.raises(ConfigError, match="looked for first"):
        DeadLetterFilter(body="x").where()
    with pytest.raises(ConfigError):
        DeadLetterFilter(body="")


# the shell


@pytest.fixture
def shell(dead_letters):
    from producer_core.cli import main

    def run(*arguments):
        path = str(dead_letters._store.path)
        return CliRunner().invoke(main, ["dlq", *arguments, "--store", path])

    return run


def test_the_shell_turns_pages_by_what_the_page_before_says(dead_letters, shell):
    dead_letters.add([dead_letter(number) for number in range(7)])
    first = json.loads(shell("list", "--limit", "5", "--json").stdout)
    second = json.loads(shell("list", "--limit", "5", "--after", first["next"], "--json").stdout)
    assert [row["message_id"] for row in second["records"]] == ["m-1", "m-0"]
    assert (first["total"], second["next"]) == (7, None)
    assert f"Next page: --after {first['next']}" in shell("list", "--limit", "5").stdout


def test_the_shell_says_how_far_it_looked_into_bodies(dead_letters, shell):
    dead_letters.add([dead_letter(1, value=b"needle"), dead_letter(2)])
    assert "Looked at all 2: 1 found." in shell("list", "--body", "needle").stdout
    found = json.loads(shell("list", "--body", "needle", "--json").stdout)
    assert [row["message_id"] for row in found["records"]] == ["m-1"]
    assert found["search"]["complete"]
    archived = shell("archive", "--body", "needle", "--yes")
    assert "Archived 1" in archived.stdout
    assert "Searched the bodies of 2 dead letters." in archived.stderr


def test_the_shell_draws_the_trend_of_a_group(dead_letters, shell):
    dead_letters.add([dead_letter(number, failed_at=NOW + number) for number in range(90)])
    assert "█" in shell("groups").stdout
    group = json.loads(shell("groups", "--json").stdout)["groups"][0]
    assert sum(group["trend"]["counts"]) == 90
