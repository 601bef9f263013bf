"""The widget: the monitor in a notebook cell, refreshed by the browser, acting with a second click."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from producer_core.dashboard.notebook import static_export, widget_state
from producer_core.dashboard.notebook.widget_actions import ActionReply, WidgetActions
from producer_core.errors import ProducerError
from producer_core.store import Store

_HERE = Path(__file__).parent
_STILL_EVERY = 30.0
"""Seconds after which the still picture is drawn anew while somebody looks: each change marks the notebook unsaved."""


class MonitorWidget(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is Any here
    """One store, live. The browser asks; a kernel that runs a cell does not answer and is seen to be busy.

    There is no thread and no timer here: where nobody looks, nothing is done.
    """

    _esm = _HERE / "widget.js"
    _css = _HERE / "widget.css"
    uid = traitlets.Unicode().tag(sync=True)
    twin = traitlets.Bool(False).tag(sync=True)
    windows = traitlets.List(list(widget_state.WINDOWS)).tag(sync=True)
    first = traitlets.Dict().tag(sync=True)

    def __init__(self, store: Store, window: str = widget_state.DEFAULT) -> None:
        self._store = store
        self._desk = WidgetActions(store)
        self._drawn = 0.0
        self._answering = threading.Lock()  # JupyterLab asks on a thread beside the one of the cells
        self._made = widget_state.moment(store, window)
        super().__init__(first=self._made.as_json())
        self.uid = str(self.model_id)[:8]
        self.on_msg(self._asked)

    @staticmethod
    def text(store: Store) -> str:
        """For a terminal."""
        return widget_state.text(widget_state.moment(store))

    @staticmethod
    def still(store: Store) -> str:
        """HTML without script."""
        return static_export.page(widget_state.moment(store), "alone")

    def _asked(self, widget: Any, message: dict[str, Any], buffers: Any) -> None:
        """One message from the browser; always answered, with what went wrong if something did."""
        with self._answering:
            self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        answer = ActionReply()
        try:
            answer = self._desk.answer(message)
            window = str(message.get("window"))
            seen = widget_state.moment(
                self._store, window if window in widget_state.WINDOWS else widget_state.DEFAULT
            )
        except ProducerError as error:
            self.send({"type": "trouble", "said": answer.said or str(error)})
            return
        self.send({"type": "now", "seen": seen.as_json(), **vars(answer)})
        if self._drawn and (
            seen.now - self._drawn > _STILL_EVERY or message.get("type") not in ("ask", "prepare")
        ):
            self._draw_still(seen, update=True)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self.twin = True
        fresh = time.time() - self._made.now < 1.0
        self._draw_still(self._made if fresh else widget_state.moment(self._store))
        bundle = self._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        display({**bundle, "text/plain": ""}, raw=True)

    def _draw_still(self, seen: widget_state.WidgetState, *, update: bool = False) -> None:
        """The picture that stays in the notebook; the widget's script hides it while it lives."""
        from IPython.display import display

        bundle = {"text/html": static_export.page(seen, self.uid), "text/plain": widget_state.text(seen)}
        display(bundle, raw=True, display_id=f"pc-{self.uid}", update=update)
        self._drawn = seen.now
