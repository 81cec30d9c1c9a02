"""Takes the picture of the README from the real app: `python docs/screenshot.py FOLDER SECONDS`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from minagi.config import Ui
from tui.client import Worker
from tui.shell import MinagiApp

OUT = Path(__file__).parent / "screenshot.svg"


async def main(folder: str, seconds: float) -> None:
    """Read `folder` for `seconds`, ask something, draw."""
    with tempfile.TemporaryDirectory() as home:
        worker = Worker([sys.executable, "-m", "minagi.worker", f"--weights={home}/notes", "--", folder])
        app = MinagiApp(worker, Ui())
        async with app.run_test(size=(120, 40)) as pilot:
            await asyncio.sleep(seconds)
            await pilot.press("i", *"What is on your mind", "enter")
            await asyncio.sleep(6)
            await pilot.press("escape")
            await asyncio.sleep(2)
            OUT.write_text(app.export_screenshot(title="minagi", simplify=True))
            await worker.close(app.fold, save=False)
        await app.finish()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
