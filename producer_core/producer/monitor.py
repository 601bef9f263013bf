"""Show a producer or a store: live in a notebook, as HTML or text elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from producer_core._internal.actor import NOTEBOOK, current_actor
from producer_core._internal.dashboard_entry import load_dashboard
from producer_core.errors import ProducerError, StoreUnavailable

if TYPE_CHECKING:
    from producer_core.diagnostics.incident import IncidentBundle
    from producer_core.dlq import DeadLetterFilter, DeadLetters, Groups
    from producer_core.dlq.approvals.request_list import Requests
    from producer_core.dlq.approvals.requests import ApprovalRequest, State
    from producer_core.dlq.archive import ArchiveResult
    from producer_core.dlq.revisions.edit_plan import ChangeArgument, Edit
    from producer_core.dlq.revisions.editor import EditResult
    from producer_core.producer.chart_selection import ChartSelection
    from producer_core.producer.frames import Kind
    from producer_core.replay.dry_run import DryRun
    from producer_core.replay.handle import Replay, Replays
    from producer_core.store import Store

_NO_STORE = "This producer has no store, so there is no history to show."
_NO_WIDGET = "The live monitor needs: pip install 'producer-core[notebook,dashboard]'"


class HasStore(Protocol):
    """A producer whose store is shown."""

    @property
    def store(self) -> Store | None: ...


class Monitor:
    """Shows a producer, a Store, or the path of a store or of an incident bundle: live in a notebook, as text in a terminal.

    The same data is available as values: `history` and `to_frame` as frames, `selection` as what is brushed in a chart;
    `groups`, `dry_run`, `replay`, `edit` and `clear` as values that a notebook displays as tables. A replay starts as a plan
    and sends nothing before its `go()`; an edit starts as a preview and changes nothing before its `go(reason)`. The widget
    belongs to the dashboard and is loaded through the entry point group `producer_core.dashboard`.

    `application` (an empty text: producers without a name) and `cluster` (an id) restrict all of it, also the dead letters
    that `replay` and `clear` select, unless their filter names others. `replays`, `requests` and `audit` show the whole store.
    """

    def __init__(
        self,
        source: HasStore | Store | Path | str,
        *,
        application: str | None = None,
        cluster: str | None = None,
    ) -> None:
        self._bundle = _bundle_of(source)  # deletes its files when the monitor is gone
        self.store = self._bundle.store if self._bundle else _store_of(source)
        self.application = application
        self.cluster = cluster
        self._widget: Any = None

    # widget

    def widget(self) -> Any:
        """Return the live widget, the same object until close(). ImportError names the packages to install."""
        if self._widget is None or self._widget.comm is None:
            self._widget = _widget_class()(self.store, **self._origin)
        return self._widget

    def close(self) -> None:
        """Close the widget. The last figures stay in the notebook."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None

    @property
    def selection(self) -> ChartSelection:
        """The time range that is brushed in a chart of the widget; its `to_frame()` returns the rows behind it."""
        from producer_core.producer.chart_selection import ChartSelection

        return ChartSelection.of({} if self._widget is None else self._widget.brush, self.store, self._origin)

    # data

    def history(
        self,
        last: str | float | None = None,
        *,
        topic: str | None = None,
        by_topic: bool = False,
        step: int | None = None,
        kind: Kind | None = None,
    ) -> Any:
        """Return the delivery statistics per window as a frame; see `producer_core.store.history`.

        `last` is a time range, by default the last hour; for an incident bundle, the end of its range, by default all.
        """
        from producer_core.diagnostics.incident.facts import incident_of
        from producer_core.store.history import history

        facts = incident_of(self.store)
        whole = facts["until"] - facts["since"] if facts else "1h"

        return history(
            self.store,
            whole if last is None else last,
            topic=topic,
            application=self.application,
            cluster=self.cluster,
            by_topic=by_topic,
            step=step,
            kind=kind,
            now=facts["until"] if facts else None,
        )

    def groups(self, where: DeadLetterFilter | None = None, *, limit: int = 50) -> Groups:
        """Return the causes of the dead letters, the most frequent first, each with its meaning and advice."""
        return self._dead_letters().groups(self._own(where), limit=limit)

    def to_frame(self, where: DeadLetterFilter | None = None, **options: Any) -> Any:
        """Return the dead letters as a frame; see `DeadLetters.to_frame`."""
        return self._dead_letters().to_frame(self._own(where), **options)

    # actions

    def dry_run(self, where: DeadLetterFilter | None = None) -> DryRun:
        """Count in the store what `replay` would do, without sending or writing anything."""
        from producer_core.replay.dry_run import dry_run
        from producer_core.replay.schema_versions import schema_versions

        where = self._own(where)
        return dry_run(self.store, where, schemas=schema_versions(self.store, where))

    def replay(
        self, where: DeadLetterFilter | None = None, *, rate: float | None = None, timeout: float = 10.0
    ) -> Replay:
        """Return the plan of a replay of all dead letters that match now. The displayed plan shows its effect; `go()` runs it.

        Before that, nothing is sent. A running producer on this store first checks the topics; the call waits for this
        for `timeout` seconds. The plan also has `pause()`, `resume()` and `cancel()`. A second call returns the same
        replay, or a plan of all dead letters if the first is undecided and more are pending by now.
        """
        from producer_core.replay import handle

        return handle.begin(self.store, self._own(where), rate=rate, timeout=timeout)

    def replays(self) -> Replays:
        """Return all replays that have not ended, the latest first. Each has the methods of a `replay` result."""
        from producer_core.replay import handle

        return handle.live(self.store)

    def edit(
        self,
        change: ChangeArgument,
        where: DeadLetterFilter | None = None,
        *,
        schema_id: int | None = None,
        registry: Mapping[str, Any] | None = None,
    ) -> Edit:
        """Return the preview of an edit of the dead letters that match. Nothing is changed before its `go(reason)`.

        `change` is a function that gets each decoded value and returns the new one, an SQL expression over `value` (text),
        or a dict of values by field path. `schema_id` names the schema to write values with, `registry` has settings such
        as `schema.registry.url`. Raise ConfigError for an invalid change or more than 10,000 dead letters.
        """
        from producer_core.dlq.revisions import edit_plan

        return edit_plan.begin(self.store, change, self._own(where), schema_id=schema_id, registry=registry)

    def undo_edits(self, where: DeadLetterFilter) -> EditResult:
        """Undo the latest edit of each dead letter that matches and was not sent. DeadLetterFilter() matches all."""
        from producer_core.dlq.revisions.editor import Editor

        return Editor(self.store).undo(self._own(where), who=current_actor(), origin=NOTEBOOK)

    def requests(self, state: State | None = None, *, limit: int = 20) -> Requests:
        """Return the requests for the approval of replays, the latest first."""
        from producer_core.dlq.approvals.request_list import requests

        return requests(self.store, state=state, limit=limit)

    def approve(self, request_id: str, *, reason: str = "") -> ApprovalRequest:
        """Approve a request of another person, as the system's user of this kernel. Its replay can then start once.

        Raise NotPermitted for its requester and for other people than approvers; ReplayError if it is not pending, or if
        the replay changed since.
        """
        from producer_core._internal.identity import system_identity
        from producer_core.dlq.approvals.requests import approve

        return approve(self.store, request_id, who=system_identity(), origin=NOTEBOOK, reason=reason)

    def refuse(self, request_id: str, *, reason: str) -> ApprovalRequest:
        """Refuse a request of another person, with a reason. Raises as `approve` does."""
        from producer_core._internal.identity import system_identity
        from producer_core.dlq.approvals.requests import refuse

        return refuse(self.store, request_id, who=system_identity(), origin=NOTEBOOK, reason=reason)

    def clear(self, where: DeadLetterFilter) -> ArchiveResult:
        """Archive the dead letters that match; nothing is deleted. DeadLetterFilter() matches all."""
        return self._dead_letters().archive(self._own(where), who=current_actor(), origin=NOTEBOOK)

    def audit(self, limit: int = 50) -> ReplayActions:
        """Return the operators' actions on this store, the latest first."""
        return ReplayActions(self.store.rows("audit_latest", limit=limit))

    # display

    def _ipython_display_(self) -> None:
        if _in_terminal():
            raise NotImplementedError  # makes IPython show the text
        try:
            widget = self.widget()
        except (ImportError, ProducerError):
            raise NotImplementedError from None
        widget._ipython_display_()

    def _display_(self) -> Any:
        """Return the object that marimo displays."""
        try:
            return self.widget()
        except (ImportError, ProducerError):
            return repr(self)

    def _repr_html_(self) -> str:
        try:
            return str(_widget_class().still(self.store, **self._origin))
        except (ImportError, ProducerError):
            from producer_core._internal import html

            return html.page("Producer", lines=repr(self).splitlines())

    def __repr__(self) -> str:
        try:
            return _text(self.store, self._origin)
        except ProducerError as error:
            return str(error)

    @property
    def _origin(self) -> dict[str, str | None]:
        return {"application": self.application, "cluster": self.cluster}

    def _own(self, where: DeadLetterFilter | None) -> DeadLetterFilter:
        """Restrict a filter to the monitor's application and cluster, unless it names others."""
        where = where or _everything()
        application = self.application if where.application is None else where.application
        known = where.cluster_id is not None or where.cluster_or_unknown is not None
        cluster = where.cluster_id if known else self.cluster
        return replace(where, application=application, cluster_id=cluster)

    def _dead_letters(self) -> DeadLetters:
        from producer_core.dlq import DeadLetters

        return DeadLetters(self.store)


class ReplayActions(list[dict[str, Any]]):
    """Rows of the audit log. A notebook displays them as a table."""

    def _repr_html_(self) -> str:
        from producer_core._internal import html

        rows = [
            (
                _moment(action["acted_at"]),
                action["who"],
                action["origin"],
                action["action"],
                action["count"],
                action["outcome"],
            )
            for action in self
        ]
        columns = ("when (UTC)", "who", "origin", "action", "records", "outcome")
        return html.page(f"Actions, the latest first: {len(self):,}", columns=columns, rows=rows)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def _everything() -> DeadLetterFilter:
    from producer_core.dlq import DeadLetterFilter

    return DeadLetterFilter()


def _text(store: Store, origin: Mapping[str, str | None]) -> str:
    try:
        return str(_widget_class().text(store, **origin))
    except ImportError:
        totals = store.rows("totals", **origin)[0]
        pending = sum(row["count"] for row in store.rows("dead_letters_by_topic", **origin))
        return (
            f"Messages: {totals['acknowledged']:,} acknowledged, {totals['dead']:,} failed. "
            f"Pending dead letters: {pending:,}. {_NO_WIDGET}"
        )


def _in_terminal() -> bool:
    """Whether IPython runs without a kernel and so cannot display a widget."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()  # type: ignore[no-untyped-call,unused-ignore]  # IPython is Any where it is missing
    return shell is not None and not hasattr(shell, "kernel")


def _bundle_of(source: Any) -> IncidentBundle | None:
    from producer_core.diagnostics.incident import IncidentBundle, is_bundle

    return IncidentBundle(source) if isinstance(source, str | Path) and is_bundle(source) else None


def _store_of(source: Any) -> Store:
    from producer_core.store import Store

    if isinstance(source, Store):
        return source
    if isinstance(source, str | Path):
        return Store.open(source, create=False)
    store = getattr(source, "store", None)
    if not isinstance(store, Store):
        raise StoreUnavailable(_NO_STORE, fix="Create the producer with store='some/path.duckdb'.")
    return store


def _widget_class() -> Any:
    return load_dashboard("monitor")
