"""Commands typed in the chat: a slash, a name of the key table, and what it wants to know."""

from __future__ import annotations

import difflib

from minagi.errors import UsageError
from tui.keymap import TABLE, Key
from tui.sanitise import clean_line

SIGN = "/"
COMMANDS = tuple(key for key in TABLE if key.slash)


def is_command(text: str) -> bool:
    """Whether a text is one; two slashes begin a text for the model."""
    return text.startswith(SIGN) and not text.startswith(SIGN * 2)


def plain(text: str) -> str:
    """What the model is told: of two slashes in front, one."""
    return text[1:] if text.startswith(SIGN * 2) else text


def name_of(key: Key) -> str:
    """The command's name, slash included; "" for a key that has none."""
    return SIGN + key.slash.split()[0] if key.slash else ""


def wants(key: Key) -> str:
    """What may follow the name, as help writes it."""
    return key.slash.partition(" ")[2]


def matches(text: str) -> list[Key]:
    """The commands that a text being typed may become, in the order of the table."""
    if not is_command(text) or any(space in text for space in " \n"):
        return []
    return [key for key in COMMANDS if name_of(key).startswith(text)]


def read(text: str) -> tuple[Key, str]:
    """The command a text is, and what follows its name. Raises UsageError, naming the nearest there is."""
    name, *rest = text.split(maxsplit=1)
    known = {name_of(key): key for key in COMMANDS}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        begun = [one for one in known if one.startswith(name)]
        hint = f"The nearest is {(begun or near)[0]}." if begun or near else "/help lists them."
        raise UsageError(
            f"There is no command {clean_line(name, 30)}. {hint} To send text that begins with a slash, "
            "type a second one in front of it."
        )
    key = known[name]
    if rest and not wants(key):
        raise UsageError(f"{name} takes nothing after it.")
    return key, rest[0].strip() if rest else ""
