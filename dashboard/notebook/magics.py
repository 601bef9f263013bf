"""The magics: `%load_ext producer_core`, then `%producer_stats`, `%dlq` and `%%watch`."""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from producer_core.dashboard.notebook.cell_summary import CellWatch
from producer_core.dlq import DeadLetterFilter, Groups
from producer_core.errors import ConfigError
from producer_core.producer.monitor import Monitor
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext producer_core`."""
    magics = Magics(shell)
    shell.register_magic_function(magics.producer_stats, "line", "producer_stats")
    shell.register_magic_function(magics.dlq, "line", "dlq")
    shell.register_magic_function(magics.watch, "cell", "watch")


class Magics:
    """Each takes a producer, a Store or a Monitor by the name of its variable, or a store's path.

    Without one: the only producer of the notebook that is open, else the default store.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def producer_stats(self, line: str = "") -> Any:
        """`%producer_stats [SOURCE]`: how it stands, live."""
        source = self._source(_words(line))
        return source.monitor() if isinstance(source, ReliableKafkaProducer) else Monitor(source)

    def dlq(self, line: str = "") -> Groups:
        """`%dlq [SOURCE] [--topic T] [--code C]`: the causes of the dead letters that wait, each with its advice."""
        parser = _Parser(prog="%dlq", add_help=False)
        parser.add_argument("source", nargs="?")
        parser.add_argument("--topic")
        parser.add_argument("--code")
        asked = parser.parse_args(_words(line))
        where = DeadLetterFilter(topic=asked.topic, code=asked.code)
        return _monitor(self._source([asked.source] if asked.source else [])).groups(where)

    def watch(self, line: str, cell: str) -> Any:
        """`%%watch [SOURCE]`: runs the cell and says what became of the messages that it sent."""
        with CellWatch(_monitor(self._source(_words(line))).store):
            return _run(self._shell, cell)

    def _source(self, words: Sequence[str]) -> Any:
        known: Mapping[str, Any] = self._shell.user_ns if self._shell is not None else {}
        if words:
            return _named(words[0], known)
        open_ones = {
            id(value): value
            for name, value in known.items()
            if isinstance(value, ReliableKafkaProducer)
            and value.store is not None
            and not name.startswith("_")
        }
        return next(iter(open_ones.values())) if len(open_ones) == 1 else Store.open(create=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}.", fix=self.format_usage().strip())


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"{line!r}: {error}.") from error


def _named(word: str, known: Mapping[str, Any]) -> Any:
    if word in known:
        value = known[word]
        if isinstance(value, ReliableKafkaProducer | Store | Monitor | str | Path):
            return value
        raise ConfigError(f"{word} is no producer, store or monitor.")
    return word


def _monitor(source: Any) -> Monitor:
    if isinstance(source, Monitor):
        return source
    return source.monitor() if isinstance(source, ReliableKafkaProducer) else Monitor(source)


def _run(shell: Any, cell: str) -> Any:
    """The cell, in the notebook's names; its last expression is what it gives. Errors are the cell's own."""
    tree = shell.compile.ast_parse(shell.transform_cell(cell), filename="<watch>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<watch>", "exec"), shell.user_ns)  # noqa: S102 it is the user's own cell
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<watch>", "eval"), shell.user_ns)  # noqa: S307 the same
