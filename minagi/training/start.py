"""How a run begins."""

from __future__ import annotations

from dataclasses import dataclass

from minagi.text.corpus import Corpus
from minagi.training.elsewhere import NOTHING
from minagi.training.request import Manner


@dataclass(frozen=True)
class Start(Manner):
    """How a trainer begins, beside its settings: in what manner, and with what was found."""

    seed: int
    fresh: bool = False
    profile: str = ""
    notice: str = ""
    elsewhere: Corpus = NOTHING  # held-out text of what the model knows and is not reading now
