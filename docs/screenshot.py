"""Takes the pictures of README and docs/app.md from the demo, a real run: `python docs/screenshot.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from minagi.config import Ui
from minagi.protocol import Pause
from tui.app import DEMO
from tui.recording import Recording
from tui.shell import MinagiApp

HERE = Path(__file__).parent
# name, recorded seconds, size, keys
PICTURES = (
    ("screenshot", 250.0, (120, 40), ()),
    ("pool", 250.0, (100, 30), ("3", "f", "right", "right")),
)


async def take(name: str, seconds: float, size: tuple[int, int], keys: tuple[str, ...]) -> None:
    """Wind the demo to a moment, press keys, draw."""
    source = Recording(DEMO)
    app = MinagiApp(source, Ui())
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        while source.at is None:
            await asyncio.sleep(0.05)
        source.seek(seconds)
        while source.winding:
            await asyncio.sleep(0.05)
        app.ask(Pause)
        await pilot.press(*keys)
        app.tick()
        await asyncio.sleep(1.0)
        app.tick()
        await pilot.pause()
        (HERE / f"{name}.svg").write_text(app.export_screenshot(title="minagi", simplify=True))
        source.seek(float("inf"))
    await app.finish()


async def main() -> None:
    for picture in PICTURES:
        await take(*picture)


if __name__ == "__main__":
    asyncio.run(main())
