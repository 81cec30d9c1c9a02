"""Lines out of a stream of bytes, for both ends of the wire."""

from __future__ import annotations

from minagi.protocol import MAX_LINE


class LineReader:
    """Cuts a byte stream into lines; a line longer than `limit` is dropped, not buffered."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._dropping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that `data` completes, but for empty ones; None stands for one that was too long."""
        *whole, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for part in whole:
            self._rest += part
            if self._dropping or len(self._rest) > self._limit:
                lines.append(None)
            elif self._rest.strip():
                lines.append(bytes(self._rest))
            self._rest.clear()
            self._dropping = False
        if self._dropping or len(self._rest) + len(rest) > self._limit:
            self._rest.clear()
            self._dropping = True
        else:
            self._rest += rest
        return lines
