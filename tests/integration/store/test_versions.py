"""Processes of an earlier and of a later version use one store at once, and each other's files after a rollback."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer_core.brokers import embedded
from tests.fixtures.versions import FEATURE, VersionProcess, first, later
from tests.support import ROOT, eventually

pytestmark = pytest.mark.slow

PAIRS = [("first", "present"), ("first", "requiring"), ("present", "requiring"), ("present", "additive")]
"""An earlier and a later version: the first that knows the list of required features, this one, and two later ones with
one more migration, of which one also requires a feature that the others lack."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("versions")
    return {
        "present": ROOT,
        "first": first(root / "first"),
        "additive": later(root / "additive"),
        "requiring": later(root / "requiring", feature=True),
        "formats": later(root / "formats", formats=True),
    }


@pytest.fixture
def run(folders):
    with contextlib.ExitStack() as processes:
        yield lambda name: processes.enter_context(VersionProcess(folders[name]))


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 1, "refused": 1}) as running:
        running.reject("refused", "POLICY_VIOLATION")
        yield running


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store.duckdb"


def numbers(start, count):
    return [str(number) for number in range(start, start + count)]


def on_topic(broker, topic):
    """Return the values of the topic's only partition, sorted."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    try:
        _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        reader.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < end:
            found += [int(one.value()) for one in reader.consume(end - len(found), 5) if one.error() is None]
        return sorted(found)
    finally:
        reader.close()


def content(folder):
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.is_file() and file.name != "lock"
    }


@pytest.mark.parametrize(("earlier", "newer"), PAIRS)
def test_two_versions_use_one_store_at_once(run, broker, store, earlier, newer):
    old, new = run(earlier), run(newer)
    old.ask("produce", broker.bootstrap_servers, store)
    old.ask("send", "orders", numbers(0, 20))
    letters = old.ask("send", "refused", numbers(0, 4))

    new.ask("produce", broker.bootstrap_servers, store)  # migrates the store
    old.ask("send", "orders", numbers(20, 20))
    new.ask("send", "orders", numbers(40, 10))
    letters += old.ask("send", "refused", numbers(4, 4))
    letters += new.ask("send", "refused", numbers(8, 2))

    expected = [50, {"dead": sorted(letters)}, sorted(letters)]
    eventually(lambda: old.ask("read", store) == expected)
    assert new.ask("read", store) == expected
    three = ",".join(letters[:3])
    assert new.command("dlq", "archive", "--ids", three, "--yes", "--store", store)[0] == 0
    archived = new.ask("read", store)
    assert len(archived[1]["archived"]) == 3

    changes = [
        ("dlq", "replay", "--topic", "refused", "--yes", "-b", broker.bootstrap_servers),
        ("dlq", "archive", "--topic", "refused", "--yes"),
        ("dlq", "restore", "--topic", "refused", "--yes"),
        ("dlq", "purge", "--topic", "refused", "--min-age", "0s", "--confirmation", "purge 3"),
        *([("store", "prune", "--yes")] if earlier == "present" else []),
    ]
    if newer == "requiring":
        for change in changes:
            code, output = old.command(*change, "--store", store)
            assert code == 2, (change, output)
            assert f"requires {FEATURE}" in output and "Upgrade" in output, output
        old.ask("maintain", store)
        assert new.ask("read", store) == archived
        assert on_topic(broker, "refused") == []
    broker.accept("refused")
    assert new.command("dlq", "restore", "--topic", "refused", "--yes", "--store", store)[0] == 0
    replays = new if newer == "requiring" else old
    code, output = replays.command(*changes[0], "--store", store)
    assert code == 0, output
    assert on_topic(broker, "refused") == list(range(10))
    assert old.ask("read", store)[1:] == [{"replayed": sorted(letters)}, []]

    acknowledged, *others = old.ask("close")
    assert acknowledged in (
        40,
        50,
    )  # any process with a producer may run the replay, and counts its ten messages
    assert others == [8, 0, 0]
    assert new.ask("close")[2:] == [0, 0]
    assert new.ask("read", store) == old.ask("read", store)
    assert not list(store.parent.glob("*damaged*"))


@pytest.mark.parametrize(("earlier", "newer"), PAIRS[1:3])
def test_an_earlier_version_continues_with_the_files_of_a_later_one(run, store, tmp_path, earlier, newer):
    """The later version ran first and was killed: its store, statistics and spilled dead letters are all read."""
    spill = tmp_path / "spill.jsonl"
    new = run(newer)
    assert new.ask("read", store) == [0, {}, []]
    new.ask("leave_statistics", store, "later", 7)
    new.ask("leave_spill", spill, ["a", "b"])
    new.kill()

    old = run(earlier)
    assert old.ask("take_spill", spill, store) == 2
    assert old.ask("read", store) == [7, {"dead": ["a", "b"]}, ["a", "b"]]
    old.ask("leave_statistics", store, "earlier", 5)
    old.ask("leave_spill", spill, ["c"])
    refused = old.ask("compact", store)
    old.kill()

    again = run(newer)
    assert again.ask("take_spill", spill, store) == 1
    assert again.ask("read", store) == [12, {"dead": ["a", "b", "c"]}, ["a", "b", "c"]]
    assert again.ask("compact", store) == ""
    assert again.ask("read", store) == [12, {"dead": ["a", "b", "c"]}, ["a", "b", "c"]]
    assert refused
    if earlier == "present":
        assert "schema version" in refused and "nothing was changed" in refused
    assert not list(store.parent.glob("*damaged*"))


@pytest.mark.parametrize("earlier", ["first", "present"])
def test_statistics_in_a_form_of_a_later_version_are_kept(run, store, earlier):
    new, old = run("formats"), run(earlier)
    new.ask("read", store)
    new.ask("leave_statistics", store, "later", 7)

    assert old.ask("read", store)[0] == 0
    (kept,) = store.parent.glob("*statistics-*")
    if earlier == "first":  # that version renames what it cannot read
        kept = kept.rename(kept.with_name(kept.name.replace("damaged-statistics", "statistics")))

    assert new.ask("read", store)[0] == 7
    assert not kept.exists()


@pytest.mark.parametrize(("writer", "reader"), [("first", "present"), ("present", "first")])
def test_a_journal_is_recovered_by_the_other_version(run, broker, store, tmp_path, writer, reader):
    journal, sent = tmp_path / "journal", run(writer)
    sent.ask("produce", "127.0.0.1:1", store, journal)  # no broker answers there
    sent.ask("send", "orders", numbers(0, 20), False)
    sent.kill()

    recovering = run(reader)
    recovering.ask("produce", broker.bootstrap_servers, store, journal)
    recovering.ask("send", "orders", numbers(20, 5))
    assert recovering.ask("close")[1:] == [0, 0, 0]

    assert on_topic(broker, "orders") == list(range(25))


@pytest.mark.parametrize("earlier", ["first", "present"])
def test_a_journal_in_a_format_of_a_later_version_is_refused_and_unchanged(
    run, broker, store, tmp_path, earlier
):
    journal, new = tmp_path / "journal", run("formats")
    new.ask("produce", "127.0.0.1:1", store, journal)
    new.ask("send", "orders", numbers(0, 20), False)
    new.kill()
    before = content(journal)

    with pytest.raises(AssertionError, match=r"JournalError: .* has format 3.*Use the version"):
        run(earlier).ask("produce", broker.bootstrap_servers, store, journal)
    assert content(journal) == before

    again = run("formats")
    again.ask("produce", broker.bootstrap_servers, store, journal)
    assert again.ask("close")[1:] == [0, 0, 0]
    assert on_topic(broker, "orders") == list(range(20))


def test_the_dashboard_of_an_earlier_version_shows_the_store_of_a_later_one(run, store, tmp_path):
    new, old = run("requiring"), run("first")
    new.ask("leave_spill", tmp_path / "spill.jsonl", ["a", "b"])
    new.ask("take_spill", tmp_path / "spill.jsonl", store)

    for errors, text in old.ask("pages", store, ["overview", "dead_letters", "settings"]):
        assert errors == []
        assert "newer" not in text
        assert text
