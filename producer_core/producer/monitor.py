"""The monitor: how a producer or a store stands; live in a notebook, as HTML or text elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core._internal.dashboard_entry import load_dashboard
from producer_core.errors import ProducerError, StoreUnavailable

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter, DeadLetters, Groups
    from producer_core.dlq.archive import ArchiveResult
    from producer_core.producer.frames import Kind
    from producer_core.replay.dry_run import DryRun
    from producer_core.replay.handle import Replay, Replays
    from producer_core.store import Store

_NO_STORE = "This producer has no store, so there is no history to show."
_NO_WIDGET = "The live monitor needs: pip install 'producer-core[notebook,dashboard]'"


class HasStore(Protocol):
    """A producer: its store is shown."""

    @property
    def store(self) -> Store | None: ...


class Monitor:
    """Shows a producer, a Store or a store's path: a live widget in a notebook, its text in a terminal.

    What it shows it also gives: `history` and `to_frame` as frames, `groups`, `dry_run`, `replay`, `clear` as values
    that a notebook draws as tables. A replay is a plan first, and sends nothing before its `go()`. The widget comes
    with the dashboard and is found through the entry point `producer_core.notebook`.
    """

    def __init__(self, source: HasStore | Store | Path | str) -> None:
        self.store = _store_of(source)
        self._widget: Any = None

    # the widget

    def widget(self) -> Any:
        """The live widget; the same object until close(). ImportError says what to install."""
        if self._widget is None or self._widget.comm is None:
            self._widget = _widget_class()(self.store)
        return self._widget

    def close(self) -> None:
        """End the widget; the numbers of its last picture stay in the notebook."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None

    # numbers

    def history(
        self,
        last: str | float = "1h",
        *,
        topic: str | None = None,
        by_topic: bool = False,
        step: int | None = None,
        kind: Kind | None = None,
    ) -> Any:
        """How delivery went, window by window, as a frame; see `producer_core.store.history`."""
        from producer_core.store.history import history

        return history(self.store, last, topic=topic, by_topic=by_topic, step=step, kind=kind)

    def groups(self, where: DeadLetterFilter | None = None, *, limit: int = 50) -> Groups:
        """The causes of the dead letters, the largest first, each with what it means and what to do."""
        return self._dead_letters().groups(where or _everything(), limit=limit)

    def to_frame(self, where: DeadLetterFilter | None = None, **options: Any) -> Any:
        """The dead letters as a frame; see `DeadLetters.to_frame`."""
        return self._dead_letters().to_frame(where, **options)

    # acts

    def dry_run(self, where: DeadLetterFilter | None = None) -> DryRun:
        """What `replay` would do, counted in the store; nothing is sent and nothing is written."""
        from producer_core.replay.dry_run import dry_run

        return dry_run(self.store, where or _everything())

    def replay(
        self, where: DeadLetterFilter | None = None, *, rate: float | None = None, timeout: float = 10.0
    ) -> Replay:
        """The plan of sending again what the filter matches now: shown, it says what it would do; its `go()` does it.

        Nothing is sent before that. A live producer on this store looks ahead on the topics first, `timeout` seconds are
        waited for that. `pause()`, `resume()` and `cancel()` are there too. Asked again, it gives the same replay, or, where nobody has
        decided it and more wait by now, a plan of all of them.
        """
        from producer_core.replay import handle

        return handle.begin(self.store, where or _everything(), rate=rate, timeout=timeout)

    def replays(self) -> Replays:
        """Replays that have not ended, whoever began them, the latest first; each can be decided as that of `replay`."""
        from producer_core.replay import handle

        return handle.live(self.store)

    def clear(self, where: DeadLetterFilter) -> ArchiveResult:
        """Put what the filter matches into the archive; nothing is deleted. DeadLetterFilter() means all of it."""
        return self._dead_letters().archive(where, who=current_actor(), origin=NOTEBOOK)

    def audit(self, limit: int = 50) -> ReplayActions:
        """What people did on this store, the latest first."""
        return ReplayActions(self.store.rows("audit_latest", limit=limit))

    # faces

    def _ipython_display_(self) -> None:
        if _in_a_terminal():
            raise NotImplementedError  # IPython then shows the text
        try:
            widget = self.widget()
        except (ImportError, ProducerError):
            raise NotImplementedError from None
        widget._ipython_display_()

    def _display_(self) -> Any:
        """What marimo shows."""
        try:
            return self.widget()
        except (ImportError, ProducerError):
            return repr(self)

    def _repr_html_(self) -> str:
        try:
            return str(_widget_class().still(self.store))
        except (ImportError, ProducerError):
            from producer_core._internal import html

            return html.page("Producer", lines=repr(self).splitlines())

    def __repr__(self) -> str:
        try:
            return _text(self.store)
        except ProducerError as error:
            return str(error)

    def _dead_letters(self) -> DeadLetters:
        from producer_core.dlq import DeadLetters

        return DeadLetters(self.store)


class ReplayActions(list[dict[str, Any]]):
    """Lines of the audit; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        rows = [
            (_moment(act["acted_at"]), act["who"], act["origin"], act["action"], act["count"], act["outcome"])
            for act in self
        ]
        columns = ("when (UTC)", "who", "where", "act", "records", "outcome")
        return html.page(f"{len(self):,} acts, the latest first", columns=columns, rows=rows)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def _everything() -> DeadLetterFilter:
    from producer_core.dlq import DeadLetterFilter

    return DeadLetterFilter()


def _text(store: Store) -> str:
    try:
        return str(_widget_class().text(store))
    except ImportError:
        totals = store.rows("totals")[0]
        waiting = sum(row["count"] for row in store.rows("dead_letters_by_topic"))
        return (
            f"{totals['acknowledged']:,} messages acknowledged, {totals['dead']:,} died, "
            f"{waiting:,} dead letters wait. {_NO_WIDGET}"
        )


def _in_a_terminal() -> bool:
    """IPython without a kernel: nothing there can draw a widget."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()  # type: ignore[no-untyped-call,unused-ignore]  # IPython is Any where it is missing
    return shell is not None and not hasattr(shell, "kernel")


def _store_of(source: Any) -> Store:
    from producer_core.store import Store

    if isinstance(source, Store):
        return source
    if isinstance(source, str | Path):
        return Store.open(source, create=False)
    store = getattr(source, "store", None)
    if not isinstance(store, Store):
        raise StoreUnavailable(_NO_STORE, fix="Make it with store='some/path.duckdb'.")
    return store


def _widget_class() -> Any:
    return load_dashboard("monitor")
