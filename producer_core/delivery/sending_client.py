"""Create the Kafka clients that send, from settings of which two are the producer's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producer_core._internal.compression_choice import COMPRESSION_CHOICE_KEY, COMPRESSION_SETTING
from producer_core._internal.id_header import ID_FORMAT_KEY, ID_HEADER, text_header
from producer_core._internal.librdkafka import Producer


class TextIdProducer(Producer):
    """Replaces the id in the first header, where the producer puts it, by its text. Everything else is the client's.

    A client of its own keeps this out of the path of producers with binary ids.
    """

    def produce(self, *record: Any) -> None:
        """Pass a record to the client. The arguments are positional; the last one has the headers, the id first."""
        *rest, ((name, value), *others) = record
        if name == ID_HEADER:
            value = text_header(value)
        super().produce(*rest, [(name, value), *others])  # type: ignore[call-arg]  # librdkafka's stub knows keywords only


def create_producer(settings: Mapping[str, Any]) -> Producer:
    """Return a Kafka client that writes ids in the format of the settings, with the codec of `compression_type="auto"`."""
    own = dict(settings)
    choice, id_format = own.pop(COMPRESSION_CHOICE_KEY, None), own.pop(ID_FORMAT_KEY, None)
    if choice is not None:
        own[COMPRESSION_SETTING] = choice()
    client: Producer = Producer(own) if id_format is None else TextIdProducer(own)
    return client
