"""The widget: the monitor in a notebook cell, refreshed by the browser, acting with a second click."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from dashboard import actions
from dashboard.notebook import feed
from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ProducerError
from producer_core.store import Store

_HERE = Path(__file__).parent
_ORIGIN = "notebook"
_STILL_EVERY = 5


class Monitor(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget is Any here
    """One store, live. The browser asks every two seconds, so a busy kernel is seen to be busy and clicks never pile up."""

    _esm = _HERE / "widget.js"
    _css = _HERE / "widget.css"
    uid = traitlets.Unicode().tag(sync=True)
    first = traitlets.Dict().tag(sync=True)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._operation: str | None = None
        self._shown = False
        self._asks = 0
        super().__init__(first=feed.moment(store).as_json())
        self.uid = str(self.model_id)[:8]
        self.on_msg(self._asked)

    @staticmethod
    def describe(store: Store) -> str:
        return feed.text(feed.moment(store))

    def _asked(self, widget: Any, message: dict[str, Any], buffers: Any) -> None:
        """One message from the browser; always answered, with what went wrong if something did."""
        said = ""
        try:
            said = self._act(str(message.get("type")), message.get("until"))
            seen = feed.moment(self._store)
        except ProducerError as error:
            self.send({"type": "trouble", "said": said or str(error)})
            return
        self.send({"type": "now", "said": said, "seen": seen.as_json()})
        self._asks += 1
        if self._shown and (self._asks % _STILL_EVERY == 0 or message.get("type") != "ask"):
            self._draw_still(seen, update=True)

    def _act(self, act: str, until: float | None) -> str:
        """`until` bounds what the person saw; what died after that is left alone."""
        seen = DeadLetterFilter(until=until)
        if act == "replay":
            return self._replay(seen)
        if act == "clear":
            self._operation = None
            return DeadLetters(self._store).archive(seen, who=actions.user(), origin=_ORIGIN).text
        return self._progress()

    def _replay(self, seen: DeadLetterFilter) -> str:
        operation = replay.plan(self._store, seen, who=actions.user(), origin=_ORIGIN)
        self._operation = operation.operation_id
        return self._progress()

    def _progress(self) -> str:
        if self._operation is None:
            return ""
        operation = replay.get(self._store, self._operation)
        if not operation.ended:
            return f"Replaying: {operation.total - operation.left:,} of {operation.total:,}"
        self._operation = None
        return operation.message or "Done."

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._draw_still(feed.moment(self._store))
        bundle = self._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        display({**bundle, "text/plain": ""}, raw=True)

    def _draw_still(self, seen: feed.Moment, *, update: bool = False) -> None:
        """The picture that stays in the notebook; the widget's script hides it while it lives."""
        from IPython.display import display

        bundle = {"text/html": feed.page(seen, self.uid), "text/plain": feed.text(seen)}
        display(bundle, raw=True, display_id=f"pc-{self.uid}", update=update)
        self._shown = True
