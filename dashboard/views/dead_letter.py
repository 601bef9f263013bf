"""Draw the details of one dead letter: its value, verdict, error, headers and timeline."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text, rules
from producer_core.dashboard import wording
from producer_core.dashboard.queries import dead_letter_list as dead_letter_queries
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import (
    common,
    dead_letter_actions,
    dead_letter_content,
    dead_letter_edit,
    dead_letter_reads,
    dead_letter_revisions,
    dead_letter_url,
    header,
)
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dlq.timeline import TimelineEvent
from producer_core.dlq.trace_link import RecordTrace
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.kafka.classify import advice_for, failure_of

_TONES = {
    "attempt failed": "bad",
    "malformed": "bad",
    "dead": "bad",
    "failed again": "bad",
    "quarantined": "bad",
    "acknowledged": "good",
    "landed": "good",
    "restored": "good",
}

_MALFORMED = "Not sent: this input is not a valid message. Edit it, then replay it."
_ERROR_TEXT_LABEL = {False: "Broker error text", True: "Input error"}
"""By whether the dead letter comes from a malformed input."""


def show(path: Path, message_id: str, listed: Sequence[DeadLetter] = ()) -> None:
    """Draw the details, the value first. `listed` is the page of the list, for the previous and the next record.

    Values are masked, and no content of a message is drawn as Markdown or HTML.
    """
    stamp = dead_letter_queries.change_stamp(open_store(path), message_id)
    reveal = dead_letter_content.revealed(message_id)
    record = stamp and dead_letter_reads.open_record(path, message_id, stamp, rules(), reveal=reveal)
    with st.container(border=True, key="pc-dead-letter"):
        _title(record.dead_letter if record else None, message_id, listed)
        if not stamp or not record:
            common.message(
                "warning",
                "This dead letter is no longer in the store. It was removed after the page opened, or the URL belongs "
                "to another store.",
            )
            return
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            dead_letter_actions.record_buttons(path, message_id, record.dead_letter.state)
            dead_letter_edit.button(path, record.dead_letter)
            dead_letter_content.copy(record, reveal=reveal)
            dead_letter_actions.record_menu(path, message_id, record.dead_letter.state)
        _state(record.dead_letter)
        dead_letter_edit.show(path, record.dead_letter, stamp)
        dead_letter_revisions.show(path, record.dead_letter)
        dead_letter_content.value(path, record, reveal=reveal)
        trace = dead_letter_queries.trace(open_store(path), record.dead_letter)
        removed = record.dead_letter.cluster_id in dead_letter_reads.pending(path).removed
        _details(record.dead_letter, record.key, record.producer, trace, cluster_removed=removed)
        dead_letter_content.key_and_headers(record, reveal=reveal)
        common.heading("Timeline")
        _timeline(
            dead_letter_reads.timeline(path, message_id, stamp),
            {record.dead_letter.producer_id: record.producer} if record.producer else {},
        )


def _title(dead_letter: DeadLetter | None, message_id: str, listed: Sequence[DeadLetter]) -> None:
    near = dead_letter_queries.Neighbors()
    if dead_letter is not None:
        near = dead_letter_queries.neighbors(listed, message_id, dead_letter.failed_at)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        common.heading("Dead letter details")
        with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
            if near.place:
                common.note(
                    f"{near.place:,} of {len(listed):,}", tooltip="The place on this page of the list."
                )
            _step("Previous", "previous", ":material/arrow_upward:", near.previous)
            _step("Next", "next", ":material/arrow_downward:", near.next)
            st.button(
                "Close", key="dead_letter_close", type="tertiary", icon=":material/close:",
                on_click=dead_letter_url.open, args=(None,),
            )  # fmt: skip
    if dead_letter is None:
        common.note(dead_letter_wording.visible_line(message_id))


def _step(label: str, name: str, icon: str, message_id: str | None) -> None:
    st.button(
        label, key=f"dead_letter_{name}", type="tertiary", icon=icon, disabled=message_id is None,
        on_click=dead_letter_url.open, args=(message_id,),
    )  # fmt: skip


def _state(dead_letter: DeadLetter) -> None:
    """Show a state other than dead at the top, because another user may have acted since the details were opened."""
    if dead_letter.state != "dead":
        common.message(
            "good" if dead_letter.state in ("replayed", "landed") else "quiet",
            dead_letter_wording.STATES[dead_letter.state],
        )
    elif dead_letter.quarantined:
        common.message(
            "warning",
            f"Quarantined: it failed again in {wording.plural(dead_letter.replay_count, 'replay')}. Bulk replays skip it; "
            "to replay it, select it.",
        )


def _details(
    dead_letter: DeadLetter,
    key: dead_letter_wording.RecordContent,
    producer: str,
    trace: RecordTrace | None,
    *,
    cluster_removed: bool,
) -> None:
    failure = failure_of(dead_letter.code)
    _verdict(dead_letter)
    _facts(
        (
            "Error",
            html.escape(dead_letter_wording.visible_line(dead_letter.code)),
            f"{failure.meaning} {advice_for(failure, [dead_letter.verdict])}".strip(),
        ),
        (
            _ERROR_TEXT_LABEL[dead_letter.never_a_message],
            "",
            dead_letter_wording.visible_line(masked(dead_letter.error_text), 2_000),
        ),
        (
            "Topic",
            html.escape(dead_letter_wording.visible_line(dead_letter.topic)),
            _partition(dead_letter.partition),
        ),
        (
            "Key",
            html.escape(dead_letter_wording.visible_line(key.text, 2_000))
            if key.kind in ("text", "json")
            else "",
            _key_description(key),
        ),
        ("Failed", common.time_element(dead_letter.failed_at, milliseconds=True), _accepted(dead_letter)),
        *(
            (("Cluster", "", dead_letter_wording.of_removed_cluster(dead_letter.cluster_id)),)
            if cluster_removed
            else ()
        ),
        ("Application", "", dead_letter_wording.visible_line(_application(dead_letter))),
        (
            "Producer",
            html.escape(dead_letter_wording.visible_line(producer or dead_letter.producer_id)),
            _host(dead_letter),
        ),
        *(
            (("Source", "", dead_letter_wording.visible_line(masked(dead_letter.source))),)
            if dead_letter.source
            else ()
        ),
        *(
            (("Producer id", "", dead_letter_wording.visible_line(dead_letter.producer_id)),)
            if producer
            else ()
        ),
        *(() if trace is None else (("Trace", _trace_html(trace), "" if trace.sampled else "not sampled"),)),
        ("Message id", html.escape(dead_letter_wording.visible_line(dead_letter.message_id)), ""),
    )
    st.button(
        "Show this group", key="dead_letter_cause", type="tertiary", icon=":material/filter_alt:",
        on_click=dead_letter_url.select_group, args=(dead_letter.fingerprint,),
    )  # fmt: skip


def _application(dead_letter: DeadLetter) -> str:
    version = dead_letter.application_version
    return f"{dead_letter.application} {f'version {version}' if version else ''}".strip()


def _trace_html(trace: RecordTrace) -> str:
    """Return the trace id, as a link if the store has a template. `trace_link` accepts HTTP addresses only."""
    return trace.trace_id if trace.link is None else common.link_element(trace.trace_id, trace.link)


def _verdict(dead_letter: DeadLetter) -> None:
    """Show whether a resend is safe, and the evidence for it. Malformed input has to be edited first."""
    if dead_letter.never_a_message:
        common.message("quiet", _MALFORMED)
        return
    meaning = wording.VERDICTS.get(dead_letter.verdict, "unknown verdict")
    reason = wording.sentence_case(replay_wording.without_options(masked(dead_letter.verdict_reason)))
    text = f"{wording.sentence_case(dead_letter.verdict.replace('_', ' '))}: {meaning}. {reason}"
    common.message(
        "good" if dead_letter.verdict in SAFE_VERDICTS else "warning",
        dead_letter_wording.visible_line(text, 2_000),
    )


def _accepted(dead_letter: DeadLetter) -> str:
    return (
        ""
        if dead_letter.never_a_message
        else dead_letter_wording.accepted(dead_letter.failed_at - dead_letter.accepted_at)
    )


def _partition(partition: int | None) -> str:
    return "" if partition is None else f"requested partition {partition}"


def _key_description(key: dead_letter_wording.RecordContent) -> str:
    return "" if key.kind in ("text", "json") else key.about


def _host(dead_letter: DeadLetter) -> str:
    host = f"on {dead_letter.host}" if dead_letter.host else ""
    return dead_letter_wording.visible_line(
        ", ".join(part for part in (host, dead_letter.version and f"version {dead_letter.version}") if part)
    )


def _facts(*rows: tuple[str, str, str]) -> None:
    """Draw rows of a name, HTML, and a text; only the HTML is inserted unescaped."""
    lines = [
        f"<dt>{html.escape(name)}</dt><dd>{f'<strong>{strong}</strong> ' if strong else ''}{html.escape(text)}</dd>"
        for name, strong, text in rows
        if strong or text
    ]
    st.html(f'<dl class="pc-facts">{"".join(lines)}</dl>')


def _timeline(events: tuple[TimelineEvent, ...], names: Mapping[str, str]) -> None:
    """Draw the events of the dead letter; `names` maps producer ids to names."""
    lines = [
        f'<li class="pc-l-{_TONES.get(one.what, "quiet")}">{common.time_element(one.at, milliseconds=True)}<b>{html.escape(one.what)}</b>'
        f"{f' by {html.escape(dead_letter_wording.visible_line(names.get(one.who, one.who)))}' if one.who else ''}"
        f"<span>{html.escape(dead_letter_wording.visible_line(masked(_spaced(one.text)), 2_000))}{_link(one)}</span></li>"
        for one in events
    ]
    st.html(f'<ol class="pc-timeline">{"".join(lines)}</ol>')


def _link(event: TimelineEvent) -> str:
    """Return a link to the replay of the event, whose text starts with the replay's id."""
    if event.what != "replay planned":
        return ""
    return (
        f" {common.link_element('Open the replay', header.link('replays', operation=event.text.split()[0]))}"
    )


def _spaced(text: str) -> str:
    """Return the text with spaces instead of underscores in a verdict at its start."""
    verdict, colon, rest = text.partition(":")
    return f"{verdict.replace('_', ' ')}{colon}{rest}" if verdict in wording.VERDICTS else text


def masked(text: str) -> str:
    return mask_text(dead_letter_wording.bounded(text))
