"""Chat and losses as files, for those whose terminal cannot copy."""

from __future__ import annotations

import csv
import time
from pathlib import Path

from tui.state import AppState


def export(state: AppState, now: float, folder: Path | None = None) -> str:
    """Write both into `folder` (default: the current one); returns a sentence. Raises OSError."""
    folder = folder or Path.cwd()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    chat, losses = folder / f"minagi-chat-{stamp}.md", folder / f"minagi-loss-{stamp}.csv"
    with chat.open("w", encoding="utf-8") as file:
        for exchange in state.chat:
            file.write(f"**you**\n\n{exchange.prompt}\n\n")
            for reply in exchange.replies:
                file.write(f"**{reply.variant}**\n\n{reply.text}\n\n")
    with losses.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("curve", "characters", "nats_low", "nats_high", "nats_last"))
        for name in ("raw", "smooth", "held"):
            for bucket in getattr(state.curves, name).buckets:
                rows.writerow((name, round(bucket.x), bucket.low, bucket.high, bucket.last))
    return f"Wrote {chat.name} and {losses.name} in {folder}."
