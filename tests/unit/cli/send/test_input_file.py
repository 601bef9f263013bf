"""Input files: encodings, compression, and files that cannot be read."""

from __future__ import annotations

import gzip
import zipfile

import pytest

from producer_core.cli.send.open_rows import InputError, open_rows
from tests.fixtures.input_rows import values, written


def test_utf_16_is_refused_and_not_read_as_malformed_lines(tmp_path):
    with pytest.raises(InputError, match=r"UTF-16.*iconv"):
        values(written(tmp_path, "a.jsonl", '{"a": 1}\n'.encode("utf-16")))


def test_gzip_and_a_zip_of_one_file_are_decompressed(tmp_path):
    compressed = written(tmp_path, "a.jsonl.gz", gzip.compress(b"1\n2\n"))
    archive = tmp_path / "b.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside.csv", "id\n7\n")

    assert values(compressed) == [b"1", b"2"]
    assert values(archive) == [{"id": 7}]


def test_a_truncated_gzip_yields_its_readable_rows_and_then_an_error(tmp_path):
    compressed = gzip.compress(b"".join(b"%d\n" % number for number in range(20000)))
    rows = iter(open_rows(written(tmp_path, "a.jsonl.gz", compressed[: len(compressed) // 2])))
    read = [next(rows)]

    with pytest.raises(InputError, match="damaged"):
        read.extend(rows)
    assert len(read) > 0


def test_a_zip_of_two_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("a.csv", "id\n7\n")
        file.writestr("b.csv", "id\n7\n")

    with pytest.raises(InputError, match="contains 2 files"):
        open_rows(tmp_path / "b.zip")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        open_rows(tmp_path / "nothing.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        open_rows(tmp_path)


@pytest.mark.parametrize("name", ["bad.jsonl.gz", "bad.csv.zip"])
def test_an_uncompressed_file_with_a_compressed_extension_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="its content is not compressed that way"):
        values(written(tmp_path, name, '{"n": 1}\n'))
