"""Draw alerts as cards: text, duration, advice and acknowledgement, with the buttons to act on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.alerts import Alert, AlertRule, Silence
from producer_core.alerts.alert_groups import AlertGroup
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import action_code, alerts
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.actions.result import ActionResult
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.queries import alerts as alert_queries
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import action_menu, alert_reads, common, header
from producer_core.dashboard.wording import alerts as alert_wording
from producer_core.store import Store

ALL = "All subjects of the rule"
_RESULT_SHOWN = 20.0
"""Seconds for which the page shows the result of an action."""
_RESULT = "alert_result"


def cards(path: Path, page: alert_queries.AlertsPage, groups: Sequence[AlertGroup]) -> None:
    rules = {one.name: one.rule for one in page.rules}
    for group in groups:
        item = group.alert
        draw(path, group, rules.get(item.rule), page.silence_of(item), page.now, page.names)


def draw(
    path: Path,
    group: AlertGroup,
    rule: AlertRule | None,
    silence: Silence | None,
    now: float,
    names: Mapping[str, str],
    *,
    linked: bool = True,
) -> None:
    """Draw one card with its buttons; `linked` makes the title a link to the alert's own page."""
    item = group.alert
    with st.container(key=f"pc-card-{item.alert_id}"):
        left, right = st.columns([5, 2], vertical_alignment="center")
        with left:
            live_dom(card(group, rule, silence, now, names, linked=linked), key=f"alert-{item.alert_id}")
        with right:
            buttons(path, group, silence)
        if silence is None and st.session_state.get("silencing") == item.alert_id:
            silence_form(path, f"of-{item.alert_id}", item.rule, "" if group.several else item.subject)


def card(
    group: AlertGroup,
    rule: AlertRule | None,
    silence: Silence | None,
    now: float,
    names: Mapping[str, str],
    *,
    linked: bool = False,
) -> Node:
    """Return the text of a card."""
    item = group.alert
    silenced = item.silenced or item.muted_by
    tone = alert_wording.TONES.get(item.severity, "quiet")
    text = alert_text(item, now)
    about = "all producers of this store" if rule and rule.shared else names.get(item.subject, item.subject)
    about = f"{len(group.alert_ids):,} topics" if group.several else about
    title = link(text, header.link("alerts", alert=item.alert_id)) if linked else text
    lines = [
        node("p", title, class_="pc-summary"),
        node(
            "p",
            node("span", item.severity, class_=f"pc-mark pc-{tone}"),
            " · ",
            node("b", alert_wording.alert_state(item)),
            " ",
            alert_wording.alert_age(item, now),
            f"{alert_wording.alert_suppression(item)} · {item.rule} · {about}",
            class_="pc-meta",
        ),
    ]
    if item.state != "resolved":
        lines.append(node("p", node("b", "What to do: "), item.advice))
    lines += [node("p", line) for line in _silence_lines(item, silence, now)]
    if ending := alert_wording.next_transition(item, rule, now):
        lines.append(node("p", ending))
    if item.acknowledged_by:
        at = f" at {_local_time(item.acknowledged_at)}" if item.acknowledged_at else ""
        lines.append(node("p", f"Acknowledged by {item.acknowledged_by}{at}."))
    return node(
        "div", *lines, class_=f"pc-card pc-{tone}{' pc-silenced' if silenced else ''}", role="article"
    )


def alert_text(item: Alert, now: float) -> str:
    """Return the alert's text, with each UTC time that webhooks contain preceded by the viewer's local time."""
    return wording.local(mask_text(item.text), common.zone(), now)


def _silence_lines(item: Alert, silence: Silence | None, now: float) -> tuple[str, ...]:
    if silence is not None:
        return (alert_wording.silenced(silence, now, _local_time(silence.until)),)
    if item.muted_by and item.state != "resolved":
        return (wording.local(f"No notifications are sent: {item.muted_by}.", common.zone(), now),)
    return ()


def _local_time(at: float | None) -> str:
    return wording.stamp(at, common.zone(), time.time()).text if at is not None else ""


# actions


def buttons(path: Path, group: AlertGroup, silence: Silence | None) -> None:
    """Draw the buttons. Their actions are callbacks, so a refresh at the same time does not lose the click."""
    item = group.alert
    if item.state == "resolved":
        return
    allowed, reason = actions.may_act(path)
    help_text = None if allowed else reason
    with st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"
    ):
        if item.state == "firing" and item.acknowledged_by is None:
            st.button(
                "Acknowledge", key=f"ack-{item.alert_id}", disabled=not allowed, help=help_text,
                on_click=act, args=(path, actions.acknowledge, *group.alert_ids),
            )  # fmt: skip
        if silence is not None:
            st.button(
                "End the silence", key=f"unsilence-{item.alert_id}", disabled=not allowed, help=help_text,
                on_click=act, args=(path, alerts.unsilence, silence.rule, silence.subject),
            )  # fmt: skip
        else:
            st.button(
                "Silence …", key=f"silence-{item.alert_id}", disabled=not allowed, help=help_text,
                on_click=_open_form, args=(item.alert_id,),
            )  # fmt: skip
        action_menu.draw(path, _codes(path, group, silence), key=f"alert-code-{item.alert_id}")


def _codes(path: Path, group: AlertGroup, silence: Silence | None) -> dict[str, ActionCode]:
    """Return the actions of the buttons as code; a new silence has its own menu, beside its choices."""
    codes, item = dict[str, ActionCode](), group.alert
    if item.state == "firing" and item.acknowledged_by is None:
        codes["Acknowledge"] = action_code.acknowledge(path, group.alert_ids)
    if silence is not None:
        codes["End the silence"] = action_code.unsilence(path, silence.rule, silence.subject)
    return codes


def silence_form(path: Path, key: str, rule: str, subject: str) -> None:
    """Draw the form for the duration, the subject and the reason of a silence."""
    with st.container(key=f"pc-silencing-{key}"):
        left, right = st.columns([1, 2])
        left.selectbox("Duration", alert_wording.SILENCES, key=f"length-{key}")
        right.selectbox("Applies to", [subject, ALL] if subject else [ALL], key=f"scope-{key}")
        st.text_input("Reason (visible to others)", key=f"why-{key}", max_chars=200)
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button(
                "Silence",
                key=f"silence-now-{key}",
                type="primary",
                on_click=_silence,
                args=(path, key, rule, subject),
            )
            st.button("Cancel", key=f"silence-cancel-{key}", on_click=_open_form, args=(None,))
            about, seconds, why = _chosen(key, subject)
            code = action_code.silence(path, rule, about, round(seconds), why)
            action_menu.draw(path, {"Silence": code}, key=f"silence-code-{key}")


def _open_form(alert_id: str | None) -> None:
    """Open the silence form of an alert; None closes it."""
    st.session_state["silencing"] = alert_id


def _silence(path: Path, key: str, rule: str, subject: str) -> None:
    act(path, alerts.silence, rule, *_chosen(key, subject))
    st.session_state["silencing"] = None


def _chosen(key: str, subject: str) -> tuple[str, float, str]:
    """Return the subject, the seconds from now and the reason of the form."""
    about = "" if st.session_state[f"scope-{key}"] == ALL else subject
    seconds = alert_wording.silence_seconds(st.session_state[f"length-{key}"], time.time(), common.zone())
    return about, seconds, st.session_state[f"why-{key}"]


def act(path: Path, do: Callable[..., ActionResult], *about: object) -> None:
    """Run an action and store its result for the page."""
    store: Store = open_store(path)
    st.session_state[_RESULT] = do(store, *about), time.time(), _section()
    alert_reads.clear()


def result() -> None:
    """Show the result of the last action for a few seconds, in the section where the user clicked."""
    done, at, section = st.session_state.get(_RESULT, (None, 0.0, None))
    if done is not None and time.time() - at < _RESULT_SHOWN and section == _section():
        common.message("good" if done.ok else "bad", mask_text(done.text))


def _section() -> str | None:
    """Return the alert or the section that the page shows."""
    alert: str | None = st.query_params.get("alert") or st.session_state.get("show")
    return alert
