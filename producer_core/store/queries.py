"""Load named queries from the files in `sql/`: `-- name: x`, a comment that describes the result, and the SQL."""

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
_OF_APPLICATION = "of_application(producer_id)"
_SAME_APPLICATION = "producer_id IN (SELECT producer_id FROM producers WHERE application = $application)"


@dataclass(frozen=True)
class Query:
    """A named statement with its description and parameters.

    `text` replaces `of_application(producer_id)` in the statement with a condition on `application`. Without that parameter
    it is `true`: a join that restricts nothing would take longer than the rest of the statement.
    """

    name: str
    description: str
    sql: str
    parameters: frozenset[str]

    def text(self, given: Mapping[str, Any]) -> str:
        """Return the statement for these parameters."""
        named = given.get("application") is not None
        return self.sql.replace(_OF_APPLICATION, _SAME_APPLICATION if named else "true")

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters for DuckDB. Missing ones are NULL; an unknown one raises TypeError."""
        if unknown := given.keys() - self.parameters:
            raise TypeError(
                f"query {self.name!r} has no parameter {sorted(unknown)}; it has {sorted(self.parameters)}"
            )
        written = _PARAMETER.findall(self.text(given))
        return {name: given.get(name) for name in self.parameters if name in written}


def run(connection: duckdb.DuckDBPyConnection, name: str, /, **given: Any) -> duckdb.DuckDBPyConnection:
    """Run a named query on a borrowed connection. Parameters left out are NULL."""
    named = query(name)
    return connection.execute(named.text(given), named.bind(given))


def query(name: str) -> Query:
    """Return the query of that name. Raise KeyError, with a list of the names, if there is none."""
    known = queries()
    if name not in known:
        raise KeyError(f"no query {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


@cache
def queries() -> Mapping[str, Query]:
    """Return all named queries of the package."""
    found: dict[str, Query] = {}
    for file in sorted(files("producer_core.store").joinpath("sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql") and not file.name[0].isdigit():
            for parsed in parse(file.read_text()):
                if parsed.name in found:
                    raise ValueError(f"two queries are named {parsed.name!r}")
                found[parsed.name] = parsed
    return found


def parse(text: str) -> list[Query]:
    """Return the named statements of a file."""
    _, *parts = _NAME.split(text)
    return [_parse_one(name, body) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _parse_one(name: str, body: str) -> Query:
    lines = body.strip().splitlines()
    head = [line for line in lines if line.startswith("--")]
    sql = "\n".join(line for line in lines if not line.startswith("--")).strip().rstrip(";")
    description = " ".join(line.removeprefix("--").strip() for line in head)
    parameters = _PARAMETER.findall(sql.replace(_OF_APPLICATION, _SAME_APPLICATION))
    return Query(name, description, sql, frozenset(parameters))
