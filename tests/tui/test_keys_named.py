"""Texts name the keys that the user has given to actions, not those that they came with."""

from __future__ import annotations

import re

import fake_run as fr
from textual.widgets import Button, Static

from minagi import protocol as p
from minagi.config import Ui
from tui.keymap import PANES, TABLE, shown, table
from tui.panes.log import LogPane
from tui.shell import MinagiApp

_SIGNS = [chr(0x430 + n) for n in range(32)] + [chr(0x561 + n) for n in range(38)]  # no text has them
MOVED = {
    key.action: ("ctrl+" if key.where == "text" else "") + sign
    for key, sign in zip(TABLE, _SIGNS, strict=False)
}
# Enter, arrows and the like mean the same everywhere; a lone a is a word, an s behind a figure a unit
_NO_NAMES = {"enter", "a", "s", *"↑↓←→<>,./"}
OLD = {shown(one) for key in TABLE for one in key.keys} - _NO_NAMES | {"ctrl+c", "(a)"}
FIXED = {"tab"}  # completes a command in the text field, and leads to a dialog's buttons


def named(text: str) -> list[str]:
    """The keys of old that a text names."""
    without = re.sub(r"\d+(\.\d+)?[kM]?|\^j|/\w+", "", text)
    words = [word.strip(".,:;·") for word in without.split()]
    words += [word.strip("()") for word in words] + re.findall(r"\bs saves\b", without)
    return sorted(set(words) & (OLD | {"s saves"}) - FIXED)


def drawn(app: MinagiApp) -> str:
    """Everything on the screen but a dialog's hints, the keys of which are its own."""
    parts = []
    for widget in app.screen.query("*"):
        if isinstance(widget, Static) and not widget.has_class("hints") and widget.display:
            parts.append(str(widget.visual))
        elif isinstance(widget, Button):
            parts.append(str(widget.label))
    if app.screen is app._desk:
        parts += [strip.text for strip in app.screen._compositor.render_strips()]
    return "\n".join(parts)


async def test_every_key_may_be_moved_and_every_text_follows() -> None:
    assert len(MOVED) == len(TABLE)
    assert named("Press i: R starts it (a), s saves one. 3 s") == ["(a)", "R", "i", "s saves"]
    known = p.HeldOut(chars=1, nats=2.0, elsewhere={"python": {"nats": 3.0, "stderr": 0.1, "before": 2.0}})
    fake = fr.FakeSource(script=[fr.hello(), fr.corpus(), *list(fr.story(30))[3:], known, p.Snapshots([])])
    app = MinagiApp(fake, Ui(), table(MOVED), clock=fr.Clock(fr.START), first_run=True)
    app.animation_level = "none"
    texts: dict[str, str] = {}
    async with app.run_test(size=(150, 46)) as pilot:

        async def see(name: str, *keys: str) -> None:
            await pilot.press(*keys)
            fr.settle(app)
            await pilot.pause()
            texts[name] = drawn(app)

        await see("welcome")
        await see("panes", "enter")
        await see("chat", MOVED["pane_chat"], MOVED["maximise"])
        await see("help", MOVED["maximise"], MOVED["help"])
        await see("closed", MOVED["help"])
        assert "Keys, signs" not in texts["closed"]
        await see("revert", MOVED["revert"])
        await see("writing", "escape", MOVED["chat"], *"go", "enter", *"on", "enter")
        app.fold(p.ReplyEnded(fake.sent[-1].id, "length", 3, 0.1))
        await see("interrupt", MOVED["interrupt"])
        await see("left", MOVED["leave_chat"])
        fake.die(1, "gone")
        await see("died")
        await see("over", "escape", MOVED["evaluate"])
        await see("pause", MOVED["pause"])
        texts["log"] = LogPane(MOVED["pane_log"]).subtitle(app.frame, app.size)
    wrong = {name: named(text) for name, text in texts.items() if named(text)}
    assert not wrong
    for name, action in (
        ("welcome", "pause"), ("panes", "chat"), ("panes", "learn"), ("chat", "manner"),
        ("panes", "evaluate"), ("revert", "checkpoint"), ("writing", "leave_chat"), ("left", "go_on"),
        ("died", "restart"), ("over", "restart"), ("log", "whole_log"),
        *(("panes", f"pane_{pane}") for pane in PANES),
    ):  # fmt: skip
        assert shown(MOVED[action]) in texts[name], (name, action)
    assert f"{MOVED['interrupt']} once more" in texts["interrupt"]
