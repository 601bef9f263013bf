"""The check of compression: what each codec would save on the topics of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.errors import StoreError

_MOST = 10
"""Topics without a selection: those with the most bytes."""


def check_compression(path: Path | str | None, topics: Sequence[str]) -> Iterator[DoctorFinding]:
    """Report each topic that a store has samples of. Without a store, or without samples, there is no finding."""
    from producer_core.diagnostics.compression_advice import compression_advice
    from producer_core.store import Store, default_path

    place = Path(path) if path else default_path()
    if not place.exists():
        return
    try:
        found = compression_advice(Store.open(place, create=False))
    except StoreError:  # a finding of `check_store`
        return
    chosen = [one for one in found if one.topic in topics] if topics else found[:_MOST]
    for one in chosen:
        shares = [
            f"{codec} leaves {100 * (one.compression.share(codec) or 0.0):.0f}%" for codec in ("lz4", "zstd")
        ]
        text = f"{shares[0]} of the bytes, {shares[1]}; the producer uses {one.codec}."
        if one.suggests_change:
            fix = f"{one.suggestion} The codec applies to all topics of the producer; 'auto' chooses it at each start."
            yield DoctorFinding(f"compression {one.topic}", "warning", text, fix)
        else:
            yield DoctorFinding(f"compression {one.topic}", "ok", f"{text} {one.suggestion}")
