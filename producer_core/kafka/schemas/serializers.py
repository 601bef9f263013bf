"""Write a message's key and value with the serializers of a producer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from confluent_kafka.serialization import MessageField, SerializationContext, Serializer

from producer_core._internal.queued_logger import queued_logger
from producer_core._internal.topic_names import is_topic_name
from producer_core._internal.user_callbacks import short_repr
from producer_core.config import ClientConfig
from producer_core.errors import ConfigError, NotAccepted
from producer_core.kafka.schemas.rejections import not_accepted
from producer_core.messages import encode_headers, encode_key, encode_value

if TYPE_CHECKING:
    from producer_core.kafka.schemas.registry import Registry
    from producer_core.kafka.schemas.subject_serializer import SubjectSerializer

logger = queued_logger(__name__)

AnySerializer = Callable[..., bytes | None]
"""A function of a value, or of a value and a SerializationContext."""
_CONTEXT_NAMES = ("ctx", "context", "serialization_context")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class MessageSerializers:
    """Writes keys and values. `value` and `key` are the producer's own serializers, or None for JSON and text.

    Serializers with a context run key first, as in confluent-kafka's SerializingProducer. They share one list of
    headers, and may append to it. `subjects` are the serializers that take their schemas from the registry, by part.
    """

    def __init__(
        self,
        value: AnySerializer | None = None,
        key: AnySerializer | None = None,
        *,
        registry: Registry | None = None,
        subjects: Mapping[str, SubjectSerializer] | None = None,
    ) -> None:
        self._value, self._key = value, key
        self._value_context, self._key_context = takes_context(value), takes_context(key)
        self._registry = registry
        self._subjects = subjects or {}

    def close(self) -> None:
        """Close the connections to the schema registry that the producer opened."""
        for serializer in self._subjects.values():
            serializer.close()
        if self._registry is not None:
            self._registry.close()

    async def wait_for_schemas(
        self, topic: str, value: Any, key: Any, override: AnySerializer | None
    ) -> None:
        """Wait, without blocking the event loop, for the schemas with which `encode` would write these."""
        if not self._subjects or not is_topic_name(topic):  # `send_message` rejects such a topic
            return
        if key is not None and (of_key := self._subjects.get("key")) is not None:
            await of_key.wait_for_schema(topic)
        written = override is None and value is not None and not isinstance(value, bytes)
        if written and (of_value := self._subjects.get("value")) is not None:
            await of_value.wait_for_schema(topic)

    def encode(
        self, topic: str, value: Any, key: Any, headers: Any, override: AnySerializer | None
    ) -> tuple[bytes | None, bytes | None, Any]:
        """Return the bytes of value and key, and the headers. `override` replaces the producer's value serializer."""
        if override is None:
            serializer, with_context = self._value, self._value_context
        else:
            serializer, with_context = override, takes_context(override)
        if not (with_context or self._key_context):
            return encode_value(value, serializer), encode_key(key, self._key), headers
        shared = encode_headers(headers)
        given = len(shared)
        write_key, write_value = self._key, serializer
        if self._key_context and self._key is not None:
            write_key = _bound(self._key, SerializationContext(topic, MessageField.KEY, shared))
        if with_context and serializer is not None:
            write_value = _bound(serializer, SerializationContext(topic, MessageField.VALUE, shared))
        key_data = encode_key(key, write_key)
        data = encode_value(value, write_value)
        return data, key_data, shared if len(shared) == given else encode_headers(shared)


def message_serializers(
    config: ClientConfig, *, may_wait: Callable[[str], bool]
) -> MessageSerializers | None:
    """Return the serializers of a producer's settings, or None if it has none. Raise ConfigError for unusable ones.

    `may_wait` is asked for the topic of a message that has to wait for the registry.
    """
    chosen: dict[str, AnySerializer | None] = {"value": config.value_serializer, "key": config.key_serializer}
    registry, subjects = None, {}
    if config.schemas is not None:
        from producer_core.kafka.schemas.registry import Registry
        from producer_core.kafka.schemas.subject_serializer import SubjectSerializer

        registry = Registry(config.schemas)
        subjects = {
            part: SubjectSerializer(registry, config.schemas, part, may_wait=may_wait)
            for part in config.schemas.formats
        }
        chosen.update(subjects)
    if chosen["value"] is None and chosen["key"] is None:
        return None
    for part, serializer in chosen.items():
        _check_serializer(f"{part}_serializer", serializer)
    return MessageSerializers(chosen["value"], chosen["key"], registry=registry, subjects=subjects)


def _bound(serializer: AnySerializer, context: SerializationContext) -> Callable[[Any], bytes | None]:
    def write(value: Any) -> bytes | None:
        try:
            return serializer(value, context)
        except NotAccepted:
            raise
        except Exception as error:
            raise not_accepted(error, serializer, value, context.field) from error

    return write


def takes_context(serializer: AnySerializer | None) -> bool:
    """Return whether a serializer takes a SerializationContext as its second argument.

    confluent-kafka's serializers do, and functions whose second positional parameter is required, is called `ctx` or
    `context`, or is annotated with SerializationContext. `pickle.dumps(value, protocol=None)` does not.
    """
    if serializer is None:
        return False
    # A lambda per message: the signature would take 10 µs.
    if type(serializer) is FunctionType and serializer.__code__.co_argcount == 1:
        return False
    try:
        return _takes_context(serializer)
    except TypeError:  # not hashable
        return _takes_context.__wrapped__(serializer)


@lru_cache(maxsize=256)
def _takes_context(serializer: AnySerializer) -> bool:
    if isinstance(serializer, Serializer):
        return True
    try:
        parameters = list(inspect.signature(serializer).parameters.values())
    except (TypeError, ValueError):  # a function in C without a signature
        return False
    if len(parameters) < 2 or parameters[1].kind not in _POSITIONAL:
        return False
    second = parameters[1]
    return (
        second.default is inspect.Parameter.empty
        or second.name in _CONTEXT_NAMES
        or "SerializationContext" in str(second.annotation)
    )


def _check_serializer(name: str, serializer: Any) -> None:
    """Raise ConfigError for an asynchronous serializer. Log a warning if its registry client has no timeout."""
    if _is_asynchronous(serializer):
        raise ConfigError(
            f"{name}={short_repr(serializer)} is asynchronous; send_message needs the bytes at once.",
            fix="Pass its synchronous form, for example AvroSerializer instead of AsyncAvroSerializer.",
        )
    if (client := getattr(serializer, "_registry", None)) is not None and hasattr(client, "config"):
        settings = client.config()
        if isinstance(settings, Mapping) and settings.get("timeout") is None:
            logger.warning(
                "the schema registry client of a serializer has no timeout: a registry that accepts connections and "
                "does not answer blocks send_message without limit; set 'timeout' in its settings",
                extra={"serializer": name},
            )


def _is_asynchronous(serializer: Any) -> bool:
    return (
        inspect.iscoroutinefunction(serializer)
        or inspect.iscoroutinefunction(getattr(type(serializer), "__call__", None))  # noqa: B004
        or "._async." in type(serializer).__module__
    )


JSON_AND_TEXT = MessageSerializers()
"""The serializers of a producer that has none, for messages with a serializer of their own."""
