"""One table of keys; remaps are taken or refused in words."""

from __future__ import annotations

import pytest

from minagi.errors import UsageError
from tui.keymap import RUN, TABLE, TALK, offered, shown, table
from tui.screens.help import help_text
from tui.shell import MinagiApp


def test_every_action_of_the_table_exists() -> None:
    for key in table({}):
        name = key.run.removeprefix("app.").partition("(")[0]
        assert hasattr(MinagiApp, f"action_{name}"), name


def test_the_keys_of_the_design_are_there() -> None:
    keys = {one: key.action for key in TABLE for one in key.keys}
    wanted = {
        "space": "pause", "ctrl+s": "checkpoint", "s": "checkpoint", "S": "name_checkpoint", "r": "revert",
        "i": "chat", "slash": "command", "tab": "next_pane", "enter": "maximise", "f": "maximise",
        "y": "log_axis", "u": "units", "e": "evaluate", "question_mark": "help", "f1": "help",
        "ctrl+p": "command_palette", "q": "leave", "ctrl+q": "leave", "ctrl+c": "interrupt",
        "c": "copy_reply", "ctrl+e": "export", "t": "learn", "g": "go_on", "ctrl+g": "go_on", "a": "manner",
        "p": "inspect",
    }  # fmt: skip
    assert {key: keys.get(key) for key in wanted} == wanted


def test_a_remap_replaces_the_keys_of_its_action() -> None:
    remapped = {key.action: key.keys for key in table({"pause": "P", "help": "F2, ?"})}
    assert remapped["pause"] == ("P",)
    assert remapped["help"] == ("f2", "question_mark")


def test_two_actions_may_swap_their_keys() -> None:
    remapped = {key.action: key.keys for key in table({"pause": "e", "evaluate": "space"})}
    assert (remapped["pause"], remapped["evaluate"]) == (("e",), ("space",))


@pytest.mark.parametrize(
    ("remaps", "words"),
    [
        ({"paws": "p"}, "Did you mean pause?"),
        ({"zzz": "p"}, "no action of the app"),
        ({"pause": "ctrl+alt+del"}, "no key"),
        ({"pause": "\x1b[31m"}, "no key"),
        ({"pause": " , "}, "no key"),
        ({"pause": "e"}, "both"),
        ({"leave_chat": "x"}, "while you type"),
        ({"select_left": "space"}, "both"),
    ],
)
def test_a_bad_remap_is_refused_in_one_sentence(remaps: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        table(remaps)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_help_tells_every_key() -> None:
    text = help_text(table({})).plain
    for key in TABLE:
        assert key.told in text
        assert all(shown(one) in text for one in key.keys)
        assert f"/{key.slash}" in text or not key.slash


def test_a_recording_offers_nothing_that_asks_a_model_and_a_run_nothing_of_recordings() -> None:
    shown_too = {key.action for key in offered(TABLE, recorded=True) if key.group in (RUN, TALK)}
    assert shown_too == {"pause", "restart", "copy_reply", "export"}
    assert not {key.action for key in offered(TABLE, recorded=False)} & {"slower", "faster", "back", "ahead"}
