"""What events and commands have in common, and the version of the protocol both belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

VERSION = 1


@dataclass(frozen=True)
class Message:
    """Base of every event and command; `type` is the name on the wire."""

    type: ClassVar[str] = ""
