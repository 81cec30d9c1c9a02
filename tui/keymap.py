"""Every key of the app, once: this table drives dispatch, footer, help and command palette.

`ui.keys` of the settings remaps it: action name -> key, or several separated by commas.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from minagi.errors import UsageError
from tui.sanitise import clean_line

RUN, LOOK, TALK, MOVE, LEAVE, REPLAY = "Run", "Look", "Chat", "Panes", "Leave", "Recorded runs"
GROUPS = (RUN, TALK, LOOK, MOVE, LEAVE, REPLAY)
PANES = ("loss", "memory", "pool", "window", "depth", "subjects", "chat", "log")


@dataclass(frozen=True)
class Key:
    """One line of the table.

    `action` is its name in the settings, `call` what the app runs (the action itself when empty).
    `where` is "app" (anywhere outside a text field), "text" (inside one too), "scroll" (in panes whose
    lines move), "replay" (while a recording is shown), or the name of the one pane it acts in. `rank`
    orders the footer, 0 keeps it out; `told` stands in help and palette. `slash` is how it is typed in
    the chat: a name, then what may follow it in brackets.
    """

    action: str
    keys: tuple[str, ...]
    label: str
    group: str
    told: str
    where: str = "app"
    rank: int = 0
    call: str = ""
    slash: str = ""

    @property
    def run(self) -> str:
        """The action as Textual runs it."""
        return f"app.{self.call or self.action}"

    @property
    def acts(self) -> str:
        """The name of the action that runs, without its parameters."""
        return (self.call or self.action).partition("(")[0]


TABLE: tuple[Key, ...] = (
    Key("pause", ("space",), "pause", RUN, "Pause or resume training", rank=2),
    Key("halt", (), "pause", RUN, "Pause training", slash="pause"),
    Key("resume", (), "resume", RUN, "Resume training", slash="resume"),
    Key("checkpoint", ("s", "ctrl+s"), "save", RUN, "Save a checkpoint now", rank=4, slash="save [name]"),
    Key("name_checkpoint", ("S",), "save as", RUN, "Save a checkpoint with a name, kept until deleted"),
    Key("revert", ("r",), "revert", RUN, "Go back to an earlier checkpoint", rank=5, slash="revert"),
    Key("delete_checkpoint", (), "delete", RUN, "Delete a kept checkpoint", slash="delete [name]"),
    Key("evaluate", ("e",), "evaluate", RUN, "Measure the held-out text now", rank=9, slash="measure"),
    Key("restart", ("R",), "restart", RUN, "Start a worker that ended again, from the last checkpoint"),
    Key("chat", ("i",), "chat", TALK, "Talk to the model", rank=3),
    Key("command", ("slash",), "command", TALK, "Type a command to the app; in the log, search it"),
    Key("leave_chat", ("escape",), "leave", TALK, "Cancel the reply, or leave the text field", "text"),
    Key("cancel_reply", ("ctrl+x",), "cancel reply", TALK, "Stop the reply that is being written", "text"),
    Key("go_on", ("g", "ctrl+g"), "go on", TALK, "Go on with the last reply", "text", slash="continue"),
    Key("manner", ("a",), "manner", TALK, "Replies: adapted, raw, or both side by side, in turn"),
    Key("raw", (), "raw", TALK, "Raw replies: greedy, nothing suppressed", slash="raw"),
    Key("both", (), "both", TALK, "Every prompt answered twice, adapted and raw", slash="both"),
    Key("adapt", (), "adapt", TALK, "Adapted replies: suppress repetition, by 0 to 10", slash="adapt [N]"),
    Key(
        "weaker",
        ("left_square_bracket",),
        "weaker",
        TALK,
        "Suppress repetition less (by 0.5)",
        call="strengthen(-1)",
    ),
    Key(
        "stronger",
        ("right_square_bracket",),
        "stronger",
        TALK,
        "Suppress repetition more (by 0.5)",
        call="strengthen(1)",
    ),
    Key("length", (), "length", TALK, "Characters of a reply, at most", slash="length [N]"),
    Key("learn", ("t",), "learn", TALK, "Read finished exchanges too, or no more", slash="learn [on|off]"),
    Key("new_chat", ("n",), "new chat", TALK, "Forget the conversation and begin a new one", slash="new"),
    Key("copy_reply", ("c",), "copy reply", TALK, "Copy the last reply to the clipboard", slash="copy"),
    Key("export", ("ctrl+e",), "export", TALK, "Write the chat and the losses to files here", slash="export"),
    Key(
        "log_axis",
        ("y",),
        "log axis",
        LOOK,
        "Loss chart: plain axes, logarithmic loss, both logarithmic",
        rank=11,
    ),
    Key(
        "units",
        ("u",),
        "bits/nats",
        LOOK,
        "Losses in bits a character or in nats (1.44 bits)",
        rank=12,
    ),
    Key("span", ("z",), "recent", LOOK, "Loss chart: the whole life or the recent stretch", rank=13),
    Key("inspect", ("p",), "inspect", LOOK, "Look into how it reads a text, character by character", rank=13),
    Key("log_pane", ("l",), "log", LOOK, "Show the log", rank=10, call="go('log')"),
    Key("whole_log", ("L",), "whole log", LOOK, "The whole log, and a search in it", slash="log"),
    Key("filter", ("v",), "filter", LOOK, "Log: everything, warnings only, or one topic", "log", rank=1),
    Key(
        "select_left", ("left",), "select", LOOK, "Pool: the expert to the left", "pool", call="select(-1, 0)"
    ),
    Key(
        "select_right",
        ("right",),
        "select",
        LOOK,
        "Pool: the expert to the right",
        "pool",
        rank=1,
        call="select(1, 0)",
    ),
    Key("select_up", ("up",), "select", LOOK, "Pool: the expert above", "pool", call="select(0, -1)"),
    Key("select_down", ("down",), "select", LOOK, "Pool: the expert below", "pool", call="select(0, 1)"),
    Key(
        "scroll_up", ("up",), "scroll", LOOK, "Log, subjects, chat: a line up", "scroll", call="scroll_by(-1)"
    ),
    Key(
        "scroll_down",
        ("down",),
        "scroll",
        LOOK,
        "Log, subjects, chat: a line down",
        "scroll",
        call="scroll_by(1)",
    ),
    Key(
        "page_up",
        ("pageup",),
        "scroll",
        LOOK,
        "Log, subjects, chat: a page up",
        "scroll",
        call="scroll_by(-10)",
    ),
    Key(
        "page_down",
        ("pagedown",),
        "scroll",
        LOOK,
        "Log, subjects, chat: a page down",
        "scroll",
        call="scroll_by(10)",
    ),
    Key("next_pane", ("tab",), "next pane", MOVE, "The next pane", "text", rank=7),
    Key(
        "previous_pane",
        ("shift+tab",),
        "previous pane",
        MOVE,
        "The pane before",
        "text",
        call="next_pane(-1)",
    ),
    *(
        Key(f"pane_{name}", (str(place),), name, MOVE, f"The {name} pane", call=f"go({name!r})")
        for place, name in enumerate(PANES, 1)
    ),
    Key(
        "maximise",
        ("enter", "f"),
        "maximise",
        MOVE,
        "Give the pane the whole screen, or give it back",
        rank=8,
    ),
    Key("help", ("question_mark", "f1"), "help", LEAVE, "Every key", rank=1, slash="help"),
    Key("command_palette", ("ctrl+p",), "palette", LEAVE, "Find any command by name", "text", rank=14),
    Key("suspend", ("ctrl+z",), "suspend", LEAVE, "Back to the shell for a while; fg returns"),
    Key("leave", ("q", "ctrl+q"), "quit", LEAVE, "Quit, asking what to keep", "text", rank=6, slash="quit"),
    Key(
        "slower",
        ("less_than_sign",),
        "slower",
        REPLAY,
        "A recording at half its pace",
        "replay",
        2,
        "pace(-1)",
    ),
    Key(
        "faster",
        ("greater_than_sign",),
        "faster",
        REPLAY,
        "A recording at twice its pace",
        "replay",
        2,
        "pace(1)",
    ),
    Key("back", ("comma",), "back", REPLAY, "A recording ten seconds back", "replay", 3, "seek(-10)"),
    Key("ahead", ("full_stop",), "on", REPLAY, "A recording ten seconds on", "replay", 3, "seek(10)"),
    Key("interrupt", ("ctrl+c",), "quit", LEAVE, "Copy what is selected; twice: save and quit", "text"),
)

_ASKS = (  # the worker, so that they do nothing in a recording
    "halt", "resume", "checkpoint", "name_checkpoint", "revert", "evaluate", "chat", "command", "inspect",
    "leave_chat", "cancel_reply", "go_on", "manner", "raw", "both", "adapt", "weaker", "stronger", "learn",
    "new_chat", "delete_checkpoint", "length",
)  # fmt: skip
_OF_PACE = ("pause", "slower", "faster", "ahead")
_OF_RECORDINGS = {  # what keys that act in both do there: label, told
    "pause": ("pause", "Pause the recording, or let it go on"),
    "restart": ("begin again", "Begin the recording again"),
    "leave": ("quit", "Leave the recording"),
    "interrupt": ("quit", "Copy what is selected; twice: leave the recording"),
}

_NAMES = {
    "space": "space", "escape": "esc", "slash": "/", "question_mark": "?", "left_square_bracket": "[",
    "right_square_bracket": "]", "left": "←", "right": "→", "up": "↑", "down": "↓", "shift+tab": "⇧tab",
    "less_than_sign": "<", "greater_than_sign": ">", "comma": ",", "full_stop": ".",
}  # fmt: skip
_SYMBOLS = {"/": "slash", "?": "question_mark", "[": "left_square_bracket", "]": "right_square_bracket"}
_WORDS = (
    "space", "escape", "enter", "tab", "left", "right", "up", "down", "home", "end", "pageup", "pagedown",
    "backspace", "delete", "insert", *(f"f{number}" for number in range(1, 13)),
    "slash", "question_mark", "left_square_bracket", "right_square_bracket", "comma", "full_stop", "minus",
    "plus", "colon", "semicolon", "apostrophe", "backslash", "less_than_sign", "greater_than_sign",
)  # fmt: skip


def offered(table: tuple[Key, ...], recorded: bool) -> tuple[Key, ...]:
    """The keys that do something: those of recordings in a recording, those that ask a worker with one."""
    if not recorded:
        return tuple(key for key in table if key.where != "replay")
    told = [(key, *_OF_RECORDINGS.get(key.action, (key.label, key.told))) for key in table]
    return tuple(replace(key, label=label, told=text) for key, label, text in told if key.action not in _ASKS)


def asks(key: Key) -> bool:
    """Whether a key needs a run that goes on, live or recorded."""
    return key.action in _ASKS or key.action in _OF_PACE


def shown(key: str) -> str:
    """A key as it is written on the screen."""
    return _NAMES.get(key, key.replace("ctrl+", "^"))


def key_of(keys: tuple[Key, ...], action: str, typing: bool = False) -> str:
    """The key that an action has now, as texts name it; with `typing` one that acts in text fields too."""
    entry = next(key for key in keys if key.action == action)
    fit = [key for key in entry.keys if not typing or _works_in_text(key)]
    return shown((fit or list(entry.keys))[0])


def table(remaps: Mapping[str, str]) -> tuple[Key, ...]:
    """The table with `remaps` applied. Raises UsageError in words for one that cannot be."""
    known = {key.action: key for key in TABLE}
    for action, text in remaps.items():
        name = clean_line(str(action), 40)
        if action not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
            raise UsageError(f"ui.keys names {name!r}, which is no action of the app. {hint}")
        keys = tuple(_parsed(name, part) for part in str(text).replace(",", " ").split())
        if not keys:
            raise UsageError(f"ui.keys gives {name} no key. Leave it out to keep its own.")
        if known[action].where == "text" and not any(_works_in_text(key) for key in keys):
            raise UsageError(
                f"ui.keys gives {name} the key {shown(keys[0])!r}, but {name} must work while you type. "
                "Add one with ctrl, or a function key."
            )
        known[action] = replace(known[action], keys=keys)
    result = tuple(known.values())
    _refuse_doubles(result)
    return result


def _parsed(action: str, text: str) -> str:
    """The key a remap names, in Textual's spelling."""
    *modifiers, last = text.split("+") if text != "+" else ["plus"]
    last = _SYMBOLS.get(last, last)
    good = last.lower() in _WORDS or (len(last) == 1 and last.isprintable() and last.isalnum())
    if not good or any(modifier not in ("ctrl", "shift") for modifier in modifiers):
        raise UsageError(
            f"ui.keys gives {action} the key {clean_line(text, 30)!r}, which is no key. "
            "Keys look like p, ctrl+p, f5, space or shift+tab."
        )
    last = last if len(last) == 1 else last.lower()
    return "+".join((*modifiers, last))


def _works_in_text(key: str) -> bool:
    return "ctrl+" in key or key in ("escape", "tab", "shift+tab") or (key[0] == "f" and key[1:].isdigit())


def _refuse_doubles(keys: tuple[Key, ...]) -> None:
    """Two actions on one key where both act would leave one of them dead."""
    seen: dict[str, list[Key]] = {}
    for entry in keys:
        for key in entry.keys:
            for other in seen.get(key, ()):
                everywhere = {entry.where, other.where} & {"app", "text"}
                if entry.where == other.where or everywhere:
                    raise UsageError(
                        f"The key {shown(key)!r} is given to both {other.action} and {entry.action}. "
                        "Change one of them in ui.keys."
                    )
            seen.setdefault(key, []).append(entry)
