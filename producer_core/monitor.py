"""The monitor: how a producer or a store stands; live in a notebook, as text elsewhere."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from producer_core.errors import ProducerError, StoreUnavailable

if TYPE_CHECKING:
    from producer_core.producer import ReliableKafkaProducer
    from producer_core.store import Store

_NO_STORE = "This producer has no store, so there is no history to show."
_NO_WIDGET = "The live monitor needs: pip install 'producer-core[notebook,dashboard]'"


class Monitor:
    """Shows a producer, a Store or a store's path. In a notebook it is a live widget, elsewhere its text.

    The widget comes with the dashboard and is found through the entry point `producer_core.notebook`.
    """

    def __init__(self, source: ReliableKafkaProducer | Store | Path | str) -> None:
        self.store = _store_of(source)
        self._widget: Any = None

    def widget(self) -> Any:
        """The live widget; the same object until close(). ImportError says what to install."""
        if self._widget is None:
            self._widget = _widget_class()(self.store)
        return self._widget

    def close(self) -> None:
        """End the widget; the numbers of its last picture stay in the notebook."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None

    def _ipython_display_(self) -> None:
        try:
            widget = self.widget()
        except (ImportError, ProducerError):
            raise NotImplementedError from None  # IPython then shows the text
        widget._ipython_display_()

    def __repr__(self) -> str:
        try:
            return _text(self.store)
        except ProducerError as error:
            return str(error)


def _text(store: Store) -> str:
    try:
        return str(_widget_class().describe(store))
    except ImportError:
        totals = store.rows("totals")[0]
        waiting = sum(row["count"] for row in store.rows("dead_letters_by_topic"))
        return (
            f"{totals['acknowledged']:,} messages acknowledged, {totals['dead']:,} died, "
            f"{waiting:,} dead letters wait. {_NO_WIDGET}"
        )


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
    for entry in entry_points(group="producer_core.notebook", name="monitor"):
        return entry.load()
    raise ImportError(_NO_WIDGET)
