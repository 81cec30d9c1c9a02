"""Real streams over small packed corpora, with the model of `tiny_runs`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiny_runs import TINY, prose

from minagi.config import LoadedSettings, load_settings
from minagi.protocol import Message
from minagi.text.collect import collect
from minagi.text.mix import Mix, Source
from minagi.text.packing import pack
from minagi.training.stream import open_stream
from minagi.training.stream_request import StreamRequest
from minagi.training.streamer import Streamer


def corpus(folder: Path, words: int = 4_000, seed: int = 1) -> Path:
    """A packed corpus of prose, made once."""
    if not folder.exists():
        text = folder.with_name(folder.name + ".txt")
        text.write_text(prose(words, seed))
        list(pack(collect([text]), folder))
    return folder


class Place:
    """Two corpora and an OUT of a test's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "out"
        self.mix = (
            Source("tales", corpus(root / "tales", seed=1), 2.0),
            Source("lists", corpus(root / "lists", seed=2), 1.0),
        )

    def loaded(self, changes: dict[str, object]) -> LoadedSettings:
        return load_settings(
            {**TINY, "growth.k": 0, **changes}, environ={}, cwd=self.root, user_dir=self.root / "user"
        )

    def request(self, changes: dict[str, object] | None = None, **asked: Any) -> StreamRequest:
        usual: dict[str, Any] = {
            "mix": self.mix, "out": self.out, "steps": 12, "warmup": 2, "log_every": 2, "eval_every": 4,
            "eval_chunks": 4, "device": "cpu", "loaded": self.loaded(changes or {}),
        }  # fmt: skip
        return StreamRequest(**{**usual, **asked})

    def open(self, changes: dict[str, object] | None = None, **asked: Any) -> Streamer:
        request = self.request(changes, **asked)
        return open_stream(request, Mix(request.mix))

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "history.jsonl").read_text().splitlines()]

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.rows]


def busy(streamer: Streamer) -> bool:
    return streamer.reading.open or streamer._reading_due()


def drive(streamer: Streamer, until: Callable[[Streamer], bool] | int | None = None) -> list[Message]:
    """Go on to the end, to so many steps of the stream (all that is due there done), or until something."""
    said: list[Message] = []
    while not streamer.concluded:
        if callable(until) and until(streamer):
            break
        if isinstance(until, int) and streamer.done >= until and not busy(streamer):
            break
        said += streamer.step()
        said += streamer.checkpoints.finish()  # rows come in the same order at every time
    return said
