"""Characters that steer a terminal, turn a line around or hide in it: one table for all that is shown.

Model output, file names and other people's text may hold any of them. The command line and the app each
put something harmless in their place, or nothing.
"""

from __future__ import annotations

CONTROLS = (*range(32), *range(127, 160))  # C0, with tab and new line, and C1
LINE_BREAKS = (0x2028, 0x2029)
# marks and overrides of direction, invisible joiners, the byte order mark, tag characters
INVISIBLE = (
    *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xE0000, 0xE0080),
    0x061C, 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB,
)  # fmt: skip
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_TABLE: dict[int, str | None] = {
    **dict.fromkeys((*CONTROLS, *LINE_BREAKS), REPLACEMENT),
    **dict.fromkeys(INVISIBLE),
    ord("\t"): "\t",
    ord("\n"): "\n",
}


def harmless(text: str) -> str:
    """`text` without what would steer a terminal or hide in it; tabs and new lines stay."""
    return text.encode("utf-8", "replace").decode("utf-8").translate(_TABLE)
