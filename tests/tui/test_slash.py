"""Commands typed in the chat are the key table's, and an unknown one names its nearest."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minagi.errors import UsageError
from tui import slash
from tui.shell import MinagiApp


def test_the_commands_of_the_design_are_there_once_each() -> None:
    names = [slash.name_of(key) for key in slash.COMMANDS]
    assert len(names) == len(set(names))
    wanted = {
        "/save", "/revert", "/pause", "/resume", "/new", "/raw", "/adapt", "/learn", "/export", "/help",
        "/continue", "/both", "/copy", "/quit",
    }  # fmt: skip
    assert wanted <= set(names)


def test_every_command_runs_something() -> None:
    for key in slash.COMMANDS:
        assert "(" not in key.call, "what is typed behind it is its only parameter"
        assert hasattr(MinagiApp, f"action_{key.acts}")


@pytest.mark.parametrize(
    ("text", "action", "rest"),
    [
        ("/save", "checkpoint", ""),
        ("/save  before the poems ", "checkpoint", "before the poems"),
        ("/adapt\n3", "adapt", "3"),
        ("/learn on", "learn", "on"),
        ("/new ", "new_chat", ""),
    ],
)
def test_a_command_is_read(text: str, action: str, rest: str) -> None:
    key, found = slash.read(text)
    assert (key.action, found) == (action, rest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/sav", "no command /sav. The nearest is /save."),
        ("/contniue", "The nearest is /continue."),
        ("/re", "The nearest is /resume."),
        ("/zzz", "/help lists them."),
        ("/usr/bin/env python", "no command /usr/bin/env."),
        ("/", "no command /."),
        ("/\x1b[31m", "no command /[31m."),
        ("/" + "x" * 999, "…."),
        ("/pause now", "/pause takes nothing after it."),
    ],
)
def test_what_is_no_command_is_told_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        slash.read(text)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_two_slashes_begin_a_text() -> None:
    assert slash.is_command("/save") and not slash.is_command("//save") and not slash.is_command(" /save")
    assert slash.plain("//save") == "/save"
    assert slash.plain("a//b") == "a//b"


def test_what_is_begun_may_become_commands() -> None:
    assert [slash.name_of(key) for key in slash.matches("/re")] == ["/resume", "/revert"]
    assert slash.matches("/") == list(slash.COMMANDS)
    for text in ("", "re", "//", "/save ", "/save me", "/zzz", "/\n"):
        assert slash.matches(text) == []


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    slash.matches("/" + text)
    with contextlib.suppress(UsageError):
        slash.read("/" + text)
