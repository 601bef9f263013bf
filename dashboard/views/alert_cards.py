"""The alerts that fire, one card each: what, since when, what to do, and who looks after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.alerts import Alert, AlertRule, Silence
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import alerts
from producer_core.dashboard.actions.result import ActionResult
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.queries import alerts as of
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import alert_reads, common, header
from producer_core.dashboard.wording import alerts as said
from producer_core.store import Store

ALL = "everything that the rule is about"
_RESULT_STAYS = 20.0
_DONE = "alert_done"


def cards(path: Path, shown: of.AlertsPage, items: Sequence[Alert]) -> None:
    rules = {one.name: one.rule for one in shown.rules}
    for item in items:
        draw(path, item, rules.get(item.rule), shown.silence_of(item), shown.now, shown.names)


def draw(
    path: Path,
    item: Alert,
    rule: AlertRule | None,
    silence: Silence | None,
    now: float,
    names: Mapping[str, str],
    *,
    opens: bool = True,
) -> None:
    """One card: what one reads, and beside it what one can do."""
    with st.container(key=f"pc-episode-{item.alert_id}"):
        left, right = st.columns([5, 2], vertical_alignment="center")
        with left:
            live_dom(card(item, rule, silence, now, names, opens=opens), key=f"alert-{item.alert_id}")
        with right:
            buttons(path, item, silence)
        if silence is None and st.session_state.get("silencing") == item.alert_id:
            silence_form(path, f"of-{item.alert_id}", item.rule, item.subject)


def card(
    item: Alert,
    rule: AlertRule | None,
    silence: Silence | None,
    now: float,
    names: Mapping[str, str],
    *,
    opens: bool = False,
) -> Node:
    """What one reads of an alert."""
    hushed = item.silenced or item.muted_by
    tone = said.TONES.get(item.severity, "quiet")
    title = alert_text(item, now)
    about = "all producers of this store" if rule and rule.shared else names.get(item.subject, item.subject)
    what = link(title, header.link("alerts", alert=item.alert_id)) if opens else title
    lines = [
        node("p", what, class_="pc-what"),
        node(
            "p",
            node("span", item.severity, class_=f"pc-mark pc-{tone}"),
            " · ",
            node("b", said.alert_state(item)),
            " ",
            said.alert_age(item, now),
            f"{said.alert_suppression(item)} · {item.rule} · {about}",
            class_="pc-meta",
        ),
    ]
    if item.state != "resolved":
        lines.append(node("p", node("b", "What to do: "), item.advice))
    lines += [node("p", text) for text in _hush(item, silence, now) if text]
    if further := said.next_transition(item, rule, now):
        lines.append(node("p", further))
    if item.acknowledged_by:
        since = f" since {_at(item.acknowledged_at)}" if item.acknowledged_at else ""
        lines.append(node("p", f"{item.acknowledged_by} looks after it{since}."))
    return node("div", *lines, class_=f"pc-episode pc-{tone}{' pc-hushed' if hushed else ''}", role="article")


def alert_text(item: Alert, now: float) -> str:
    """What it says, with the moments it names in the viewer's zone beside UTC, in which webhooks have them."""
    return wording.local(mask_text(item.text), common.zone(), now)


def _hush(item: Alert, silence: Silence | None, now: float) -> tuple[str, ...]:
    if silence is not None:
        return (said.silenced(silence, now, _at(silence.until)),)
    if item.muted_by and item.state != "resolved":
        return (wording.local(f"Nobody is told: {item.muted_by}.", common.zone(), now),)
    return ()


def _at(moment: float | None) -> str:
    return wording.stamp(moment, common.zone(), time.time()).text if moment is not None else ""


# acts


def buttons(path: Path, item: Alert, silence: Silence | None) -> None:
    """Acknowledge, silence, end the silence. Callbacks: a click counts also while the page is drawn again."""
    if item.state == "resolved":
        return
    allowed, reason = actions.may_act()
    known = None if allowed else reason
    with st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"
    ):
        if item.state == "firing" and item.acknowledged_by is None:
            st.button(
                "Acknowledge", key=f"ack-{item.alert_id}", disabled=not allowed, help=known,
                on_click=_act, args=(path, actions.acknowledge, item.alert_id),
            )  # fmt: skip
        if silence is not None:
            st.button(
                "End the silence", key=f"loud-{item.alert_id}", disabled=not allowed, help=known,
                on_click=_act, args=(path, alerts.unsilence, silence.rule, silence.subject),
            )  # fmt: skip
        else:
            st.button(
                "Silence …", key=f"quiet-{item.alert_id}", disabled=not allowed, help=known,
                on_click=_ask, args=(item.alert_id,),
            )  # fmt: skip


def silence_form(path: Path, key: str, rule: str, subject: str) -> None:
    """For how long, for what, and why."""
    with st.form(f"silence-{key}", border=False):
        left, right = st.columns([1, 2])
        left.selectbox("For how long", list(said.SILENCES), key=f"length-{key}")
        right.selectbox("For", [subject, ALL] if subject else [ALL], key=f"scope-{key}")
        st.text_input("Why (others will read it)", key=f"why-{key}", max_chars=200)
        with st.container(horizontal=True):
            st.form_submit_button(
                "Silence", type="primary", on_click=_silence, args=(path, key, rule, subject)
            )
            st.form_submit_button("Cancel", on_click=_ask, args=(None,))


def _ask(alert_id: str | None) -> None:
    st.session_state["silencing"] = alert_id


def _silence(path: Path, key: str, rule: str, subject: str) -> None:
    about = "" if st.session_state[f"scope-{key}"] == ALL else subject
    seconds = said.SILENCES[st.session_state[f"length-{key}"]]
    _act(path, alerts.silence, rule, about, seconds, st.session_state[f"why-{key}"])
    st.session_state["silencing"] = None


def act(path: Path, do: Callable[..., ActionResult], *about: object) -> None:
    """Act, and remember how it went."""
    store: Store = opened(path)
    st.session_state[_DONE] = do(store, *about), time.time(), _place()
    alert_reads.again()


_act = act


def result() -> None:
    """The last act in words, for a while, where it was done."""
    done, at, place = st.session_state.get(_DONE, (None, 0.0, None))
    if done is not None and time.time() - at < _RESULT_STAYS and place == _place():
        common.say("good" if done.ok else "bad", mask_text(done.text))


def _place() -> str | None:
    """The alert, or the section, that is looked at."""
    alert: str | None = st.query_params.get("alert") or st.session_state.get("show")
    return alert
