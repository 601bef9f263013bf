"""The monitor as a notebook widget; the browser refreshes it, and actions need a second click."""

from __future__ import annotations

import threading
import time
from typing import Any

import anywidget
import traitlets

from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dashboard.notebook.widget_actions import ActionReply, WidgetActions
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.theme import asset
from producer_core.errors import ProducerError
from producer_core.store import Store

_STATIC_EVERY = 30.0
"""Seconds between updates of the static view; each update marks the notebook as unsaved."""


class MonitorWidget(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is Any here
    """Shows one store live.

    The browser polls; a kernel that runs a cell does not reply, and the browser shows it as busy. The widget has no
    thread and no timer, so a widget out of view costs nothing.
    """

    _esm = "".join(
        asset(name)
        for name in (
            "components/clipboard.js", "notebook/widget_charts.js", "notebook/widget_brush.js", "notebook/widget.js",
        )
    )  # fmt: skip
    _css = asset("notebook/widget.css")
    uid = traitlets.Unicode().tag(sync=True)
    has_static = traitlets.Bool(False).tag(sync=True)
    windows = traitlets.List(list(widget_state.WINDOWS)).tag(sync=True)
    first = traitlets.Dict().tag(sync=True)
    brush = traitlets.Dict().tag(sync=True)
    """The brushed range of a chart, which the browser writes and `Monitor.selection` reads; empty without one."""

    def __init__(
        self,
        store: Store,
        window: str = widget_state.DEFAULT,
        *,
        application: str | None = None,
        cluster: str | None = None,
    ) -> None:
        self._store = store
        self._view = View(application=application, cluster=cluster)
        self._actions = WidgetActions(store, view=self._view)
        self._static_at = 0.0
        # JupyterLab delivers messages on a thread beside the one that runs cells
        self._lock = threading.Lock()
        self._first = widget_state.moment(store, window, view=self._view)
        super().__init__(first=self._first.as_json())
        self.uid = str(self.model_id)[:8]
        self.on_msg(self._on_message)

    @staticmethod
    def text(store: Store, *, application: str | None = None, cluster: str | None = None) -> str:
        """Return the state as text for a terminal."""
        view = View(application=application, cluster=cluster)
        return widget_state.text(widget_state.moment(store, view=view))

    @staticmethod
    def still(store: Store, *, application: str | None = None, cluster: str | None = None) -> str:
        """Return the state as HTML without scripts."""
        view = View(application=application, cluster=cluster)
        return static_export.page(widget_state.moment(store, view=view), "alone")

    def _on_message(self, widget: Any, message: dict[str, Any], buffers: Any) -> None:
        """Reply to one message from the browser; an error is a reply too."""
        with self._lock:
            self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        reply = ActionReply()
        try:
            reply = self._actions.answer(message)
            window = str(message.get("window"))
            state = widget_state.moment(
                self._store,
                window if window in widget_state.WINDOWS else widget_state.DEFAULT,
                view=self._view,
            )
        except ProducerError as error:
            self.send({"type": "error", "message": reply.message or str(error)})
            return
        self.send({"type": "state", "state": state.as_json(), **vars(reply)})
        if self._static_at and (
            state.now - self._static_at > _STATIC_EVERY or message.get("type") not in ("refresh", "prepare")
        ):
            self._display_static(state, update=True)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self.has_static = True
        recent = time.time() - self._first.now < 1.0
        self._display_static(self._first if recent else widget_state.moment(self._store, view=self._view))
        bundle = self._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        display({**bundle, "text/plain": ""}, raw=True)

    def _display_static(self, state: widget_state.WidgetState, *, update: bool = False) -> None:
        """Display the view that stays in the saved notebook; the script hides it while the widget is live."""
        from IPython.display import display

        bundle = {
            "text/html": static_export.page(state, self.uid),
            "text/plain": widget_state.text(state),
        }
        display(bundle, raw=True, display_id=f"pc-{self.uid}", update=update)
        self._static_at = state.now
