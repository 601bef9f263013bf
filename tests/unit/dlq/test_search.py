"""Listing dead letters by pages, searching bodies, and filters in URLs and command lines."""

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
OPERATOR = {"who": "me", "origin": "python"}


@pytest.fixture
def dead_letters(tmp_path):
    return DeadLetters(Store.open(tmp_path / "store.duckdb"), clock=lambda: NOW + 1000)


# filters


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
def test_any_filter_survives_a_url(where):
    query = where.to_query()
    assert all(query.values())
    assert DeadLetterFilter.from_query(query) == where


@pytest.mark.slow
@given(filters)
@settings(deadline=None)
def test_any_filter_survives_a_command_line(where):
    parsed = []

    @click.command()
    @filter_options.filter_and_state_options
    def command(**options):
        parsed.append(filter_options.chosen(options))

    outcome = CliRunner().invoke(command, command_options(where))
    assert outcome.exit_code == 0, outcome.output
    assert parsed == [where]


@pytest.mark.parametrize("query", [{"ids": "[1"}, {"topic": '"a"b"'}, {"since": "inf"}, {"until": "nan"}])
def test_an_invalid_query_is_an_error(query):
    with pytest.raises(ConfigError):
        DeadLetterFilter.from_query(query)


def test_a_key_is_text_or_bytes_in_hexadecimal(dead_letters):
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


def test_the_migration_computes_the_same_key_mark(dead_letters):
    dead_letters.add([dead_letter(1, key=b"k"), dead_letter(2, key=None), dead_letter(3, key=b"\x00\xff")])
    expression = "(md5_number_lower(key) & 4294967295)::UINTEGER"  # as in the migration
    with dead_letters._store.borrow() as connection:
        rows = connection.execute(
            f"SELECT key_mark, {expression} FROM dead_letters ORDER BY message_id"
        ).fetchall()
    assert [one for one, _ in rows] == [other for _, other in rows]
    assert rows[1] == (None, None)
    assert expression in (files("producer_core.store") / "sql" / "0005_dead_letter_counts.sql").read_text()


# pages


def ids(found):
    return [one.message_id for one in found]


def test_pages_equal_the_listing_even_for_equal_failure_times(dead_letters):
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


def test_a_new_dead_letter_does_not_shift_the_next_page(dead_letters):
    dead_letters.add([dead_letter(number) for number in range(10)])
    first = dead_letters.page(DeadLetterFilter(), limit=5)
    dead_letters.add([dead_letter(99)])
    second = dead_letters.page(DeadLetterFilter(), limit=5, after=first.next)
    assert ids(first.dead_letters + second.dead_letters) == [f"m-{number}" for number in range(9, -1, -1)]


def test_an_invalid_cursor_is_an_error():
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


@pytest.mark.slow
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
def test_body_is_searched_in_value_key_and_headers(dead_letters, body, expected):
    dead_letters.add(BODIES)
    memory = DeadLetterQueue()
    for one in BODIES:
        memory.add(one)

    found = dead_letters.search(DeadLetterFilter(body=body))

    assert ids(found.dead_letters) == expected
    assert (found.complete, found.looked_at, found.of) == (True, 5, 5)
    assert ids(memory.find(DeadLetterFilter(body=body))) == expected


def test_an_incomplete_search_reports_its_progress_and_can_be_continued(dead_letters):
    dead_letters.add(
        [dead_letter(number, value=b"needle" if number in (2, 17) else b"hay") for number in range(20)]
    )
    where = DeadLetterFilter(body="needle")

    first = dead_letters.search(where, dead_letters=10)
    second = dead_letters.search(where, after=first.next)

    assert (ids(first.dead_letters), first.looked_at, first.of, first.complete) == (["m-17"], 10, 20, False)
    assert first.text == (
        "Searched 10 of 20, the latest first, back to 2027-01-15 08:00:10 UTC: 1 found so far."
    )
    assert (ids(second.dead_letters), second.looked_at) == (["m-2"], 10)


def test_a_search_ends_at_its_time_limit_or_when_enough_is_found(dead_letters, monkeypatch):
    monkeypatch.setattr(search, "_SLICE_ROWS", 4)
    dead_letters.add([dead_letter(number) for number in range(20)])

    timed_out = dead_letters.search(DeadLetterFilter(body="nowhere"), seconds=-1)
    limited = dead_letters.search(DeadLetterFilter(body="key"), limit=3)

    assert (timed_out.looked_at, timed_out.complete) == (4, False)
    assert (ids(limited.dead_letters), limited.looked_at, limited.complete) == (
        ["m-19", "m-18", "m-17"],
        3,
        False,
    )


@pytest.mark.slow
def test_a_change_with_body_affects_exactly_the_dead_letters_found(dead_letters):
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
    assert dead_letters.archive(where, **OPERATOR).count == 2
    assert dead_letters.archive(where, **OPERATOR).count == 0
    assert dead_letters.get("m-2").state == "dead"
    assert dead_letters.restore(where, **OPERATOR).count == 2
    assert dead_letters.archive(DeadLetterFilter(), **OPERATOR).count == 3
    archived = DeadLetterFilter(state="archived", body="needle")
    phrase = dead_letters.purge_phrase(archived, min_age=-60)
    assert phrase == "purge 2"
    assert dead_letters.purge(archived, **OPERATOR, confirmation=phrase, min_age=-60).count == 2


def test_a_body_without_matches_selects_nothing(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(2)])
    assert dead_letters.count(DeadLetterFilter(body="nowhere")) == 0
    assert dead_letters.archive(DeadLetterFilter(body="nowhere"), **OPERATOR).count == 0


def test_a_change_with_body_is_rejected_after_an_incomplete_search(dead_letters, monkeypatch):
    dead_letters.add([dead_letter(number) for number in range(20)])
    monkeypatch.setattr(search, "MAX_IDS", 3)
    with pytest.raises(ConfigError, match=r"Nothing was changed.*Searched 3 of 20.*Narrow the selection"):
        dead_letters.archive(DeadLetterFilter(body="key"), **OPERATOR)
    assert dead_letters.count(DeadLetterFilter()) == 20


def test_a_filter_with_body_cannot_be_an_sql_condition():
    with pytest.raises(ConfigError, match="cannot be expressed as an SQL condition"):
        DeadLetterFilter(body="x").where()
    with pytest.raises(ConfigError):
        DeadLetterFilter(body="")


# the commands


@pytest.fixture
def dlq(dead_letters):
    from producer_core.cli import main

    def run(*arguments):
        path = str(dead_letters._store.path)
        return CliRunner().invoke(main, ["dlq", *arguments, "--store", path])

    return run


@pytest.mark.slow
def test_list_prints_the_cursor_of_the_next_page(dead_letters, dlq):
    dead_letters.add([dead_letter(number) for number in range(7)])
    first = json.loads(dlq("list", "--limit", "5", "--json").stdout)
    second = json.loads(dlq("list", "--limit", "5", "--after", first["next"], "--json").stdout)
    assert [row["message_id"] for row in second["records"]] == ["m-1", "m-0"]
    assert (first["total"], second["next"]) == (7, None)
    assert f"Next page: --after {first['next']}" in dlq("list", "--limit", "5").stdout


@pytest.mark.slow
def test_list_reports_the_progress_of_a_body_search(dead_letters, dlq):
    dead_letters.add([dead_letter(1, value=b"needle"), dead_letter(2)])
    assert "Searched 2 dead letters: 1 found." in dlq("list", "--body", "needle").stdout
    found = json.loads(dlq("list", "--body", "needle", "--json").stdout)
    assert [row["message_id"] for row in found["records"]] == ["m-1"]
    assert found["search"]["complete"]
    archived = dlq("archive", "--body", "needle", "--yes")
    assert "Archived 1" in archived.stdout
    assert "Searched the bodies of 2 dead letters." in archived.stderr


def test_groups_prints_the_trend_of_a_group(dead_letters, dlq):
    dead_letters.add([dead_letter(number, failed_at=NOW + number) for number in range(90)])
    assert "█" in dlq("groups").stdout
    group = json.loads(dlq("groups", "--json").stdout)["groups"][0]
    assert sum(group["trend"]["counts"]) == 90
