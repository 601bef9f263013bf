"""An invalid record is refused."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from producer_core.dlq import DeadLetters
from producer_core.dlq.files import export, import_
from tests.fixtures.replays import add_dead_letters, dead_letter, message_id
from tests.fixtures.transfers import ANY, ME, execute, rewrite


def test_a_dead_letter_without_its_body_is_not_imported_as_a_tombstone(store, other, tmp_path):
    add_dead_letters(store, 2)
    execute(store, "DELETE FROM dead_letter_bodies WHERE message_id = ?", message_id(0))
    export(store, ANY, tmp_path / "a.parquet", **ME)

    done = import_(other, tmp_path / "a.parquet", **ME)

    assert (done.new, done.refused) == (1, 1)
    assert "value is null instead of 2 bytes" in done.bad[0].reason


def without_application(path):
    """Rewrite an export as a version without application names wrote it."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).drop_columns(["application"]), path)
        return

    def change(lines):
        records = [json.loads(line) for line in lines]
        return [
            json.dumps({name: record[name] for name in record if name != "application"}).encode() + b"\n"
            for record in records
        ]

    rewrite(path, change)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_an_export_keeps_the_application_and_an_export_of_an_earlier_version_has_none(
    store, other, tmp_path, name
):
    DeadLetters(store).add([dead_letter(1, application="checkout")])
    export(store, ANY, tmp_path / name, **ME)
    export(store, ANY, tmp_path / f"earlier-{name}", **ME)
    without_application(tmp_path / f"earlier-{name}")

    import_(other, tmp_path / f"earlier-{name}", **ME, no_manifest=True)
    assert DeadLetters(other).get(message_id(1)).application == ""

    execute(other, "DELETE FROM dead_letters")
    execute(other, "DELETE FROM dead_letter_bodies")
    import_(other, tmp_path / name, **ME)
    assert DeadLetters(other).get(message_id(1)).application == "checkout"
