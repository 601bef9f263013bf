"""Load the native core: an optional C library that produces messages and collects their reports without Python's lock."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from producer_core._internal.librdkafka import library, library_path

CORE_PATH = Path(__file__).with_name("core.so")
"""The compiled `core.c`. A build without a compiler does not have it."""
KNOWN_LIBRDKAFKA = frozenset({(2, 16)})
"""The versions of librdkafka, as major and minor number, with which the core is tested. It refuses all others."""

_handle, _pointer = ctypes.c_void_p, ctypes.POINTER
_FUNCTIONS = {
    "core_load": (ctypes.c_int, ctypes.c_char_p, ctypes.py_object),
    "core_new": (_handle,),
    "core_free": (None, _handle),
    "core_live": (ctypes.c_int,),
    "core_attach": (ctypes.c_int, _handle, ctypes.c_int),
    "core_begin": (ctypes.c_int64, _handle),
    "core_produce": (ctypes.c_int64, _handle, ctypes.py_object, ctypes.c_int64, _pointer(ctypes.c_int)),
    "core_missing": (ctypes.c_int64, _handle, _pointer(ctypes.c_int)),
    "core_columns": (ctypes.c_int64, _handle, _handle, _handle, ctypes.c_int64),
}
"""Result and argument types."""


class CoreUnavailable(Exception):
    """The native core cannot be used here. The text is a sentence that gives the reason."""


@cache
def core_library() -> ctypes.PyDLL:
    """Return the loaded core. Raise CoreUnavailable where it was not built or does not know the client library."""
    _check_interpreter()
    if not CORE_PATH.exists():
        raise CoreUnavailable("It was not built: the installation found no C compiler.")
    try:
        core = ctypes.PyDLL(str(CORE_PATH))
    except OSError as error:
        raise CoreUnavailable(f"Its library cannot be loaded: {error}.") from error
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(core, name)
        function.restype, function.argtypes = result, arguments
    _check_version(int(library().rd_kafka_version()))
    if not core.core_load(library_path().encode(), None):
        raise CoreUnavailable("The librdkafka of confluent-kafka lacks a function that the core needs.")
    return core


def unavailable_reason() -> str | None:
    """Return the sentence that says why the core cannot be used; None if it can."""
    try:
        core_library()
    except CoreUnavailable as error:
        return str(error)
    return None


def _check_interpreter() -> None:
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise CoreUnavailable("It supports CPython with the global interpreter lock only.")


def _check_version(version: int) -> None:
    """Check rd_kafka_version(), which is 0xMMmmrrpp."""
    known = (version >> 24, version >> 16 & 0xFF)
    if known not in KNOWN_LIBRDKAFKA:
        raise CoreUnavailable(f"It does not know librdkafka {known[0]}.{known[1]}.")
