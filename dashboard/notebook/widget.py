"""The widget: the monitor in a notebook cell, refreshed by the browser, acting with a second click."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from dashboard import actions
from dashboard.notebook import feed
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ProducerError
from producer_core.store import Store

_HERE = Path(__file__).parent


class Monitor(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is Any here
    """One store, live. The browser asks every two seconds, so a busy kernel is seen to be busy and clicks never pile up."""

    _esm = _HERE / "widget.js"
    _css = _HERE / "widget.css"
    uid = traitlets.Unicode().tag(sync=True)
    first = traitlets.Dict().tag(sync=True)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._operation: str | None = None
        super().__init__(first=feed.moment(store).as_json())
        self.uid = str(self.model_id)[:8]
        self.on_msg(self._asked)

    def text(self) -> str:
        return feed.text(feed.moment(self._store))

    def _asked(self, widget: Any, message: dict[str, Any], buffers: Any) -> None:
        """One message from the browser; always answered, with what went wrong if something did."""
        try:
            said = self._act(str(message.get("type")))
            self.send({"type": "now", "said": said, "seen": feed.moment(self._store).as_json()})
        except ProducerError as error:
            self.send({"type": "trouble", "said": str(error)})

    def _act(self, act: str) -> str:
        if act == "replay":
            done = actions.start_replay(self._store, DeadLetterFilter())
            self._operation = done.operation_id if done.ok else None
            return done.text
        if act == "clear":
            self._operation = None
            return actions.clear(self._store, DeadLetterFilter()).text
        return self._progress()

    def _progress(self) -> str:
        if self._operation is None:
            return ""
        operation = actions.follow(self._store, self._operation)
        if not operation.ended:
            return f"Replaying: {operation.total - operation.left:,} of {operation.total:,}"
        return operation.message or "Done."

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(HTML(feed.page(feed.moment(self._store), self.uid)))
        bundle = self._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        display({**bundle, "text/plain": ""}, raw=True)
