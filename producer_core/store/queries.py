"""A named query: SQL that lives in a file of `sql/`, under `-- name: x` and a line on what it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_NAME = re.compile(r"^-- name: *(\w+) *$", re.M)
_PARAMETER = re.compile(r"\$([a-z_]+)")


@dataclass(frozen=True)
class Query:
    """One statement, what it answers, and the parameters it knows."""

    name: str
    description: str
    sql: str
    parameters: frozenset[str]

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters for DuckDB: those left out are NULL; an unknown one is a TypeError."""
        if unknown := given.keys() - self.parameters:
            raise TypeError(
                f"query {self.name!r} has no parameter {sorted(unknown)}; it has {sorted(self.parameters)}"
            )
        return {name: given.get(name) for name in self.parameters}


def run(connection: duckdb.DuckDBPyConnection, name: str, /, **given: Any) -> duckdb.DuckDBPyConnection:
    """The named query on a connection that is lent already; parameters left out are NULL."""
    asked = query(name)
    return connection.execute(asked.sql, asked.bind(given))


def query(name: str) -> Query:
    """The query of that name; a KeyError that lists the names when there is none."""
    known = queries()
    if name not in known:
        raise KeyError(f"no query {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


@cache
def queries() -> Mapping[str, Query]:
    """Every named query of the package."""
    found: dict[str, Query] = {}
    for file in sorted(files("producer_core.store").joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql") and not file.name[0].isdigit():
            for parsed in _parse(file.read_text()):
                if parsed.name in found:
                    raise ValueError(f"two queries are named {parsed.name!r}")
                found[parsed.name] = parsed
    return found


def _parse(text: str) -> list[Query]:
    _, *parts = _NAME.split(text)
    return [_one(name, body) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _one(name: str, body: str) -> Query:
    lines = body.strip().splitlines()
    head = [line for line in lines if line.startswith("--")]
    sql = "\n".join(line for line in lines if not line.startswith("--")).strip().rstrip(";")
    answers = " ".join(line.removeprefix("--").strip() for line in head)
    return Query(name, answers, sql, frozenset(_PARAMETER.findall(sql)))
