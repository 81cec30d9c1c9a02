"""What is known about every expert: how it is used, how old it is, when it was last admitted.

Times are on the TEXT clock: `segments` counts texts begun in training (a forward from position 0),
so that a pool read with long texts and one read with short ones age alike.
Only training forwards count: writing and measuring leave no mark here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minagi.finite import count, number

RECENT = 1 / 1000  # weight of one training forward in the running average of admissions
COUNT_MAX = 10**12  # texts, steps or names; a manifest that states more is mistaken

_FLOATS = ("gate_seen", "use", "admits", "born", "last_seen", "recent")


class Telemetry:
    """Arrays in pool order, one entry an expert.

    gate_seen: gate when last admitted · use: running share of routed assignments · admits: training
    forwards that admitted it · born, last_seen: texts · recent: running average of admissions a forward ·
    ever: admitted at least once · uid: permanent name.
    """

    def __init__(self, experts: int) -> None:
        self.gate_seen = np.ones(experts)
        self.use = np.zeros(experts)
        self.admits = np.zeros(experts)
        self.born = np.zeros(experts)
        self.last_seen = np.zeros(experts)
        self.recent = np.zeros(experts)
        self.ever = np.zeros(experts, dtype=bool)
        self.uid = list(range(experts))
        self.next_uid = experts
        self.segments = 0

    def __len__(self) -> int:
        return len(self.uid)

    def begin_forward(self, opens: bool = True) -> None:
        """A training forward begins: recent admissions fade, and it is one text more if it `opens` one."""
        self.segments += opens
        self.recent *= 1 - RECENT

    def admitted(self, experts: list[int]) -> None:
        """These experts (places in pool order) were admitted by a training forward."""
        self.recent[experts] += RECENT
        self.admits[experts] += 1
        self.last_seen[experts] = self.segments
        self.ever[experts] = True

    def chosen(self, requests: dict[int, int]) -> None:
        """A training forward chose these experts (places in pool order) so many times."""
        total = sum(requests.values())
        self.use *= 1 - RECENT
        for place, times in requests.items():
            self.use[place] += RECENT * times / total

    def share(self) -> np.ndarray:
        """[E] share of recent admissions, sums to 1; uniform before anything was admitted."""
        total = self.recent.sum()
        return self.recent / total if total > 0 else np.full(len(self), 1 / len(self))

    def append(self) -> int:
        """One expert more, born now; returns its uid."""
        for name in _FLOATS:
            setattr(self, name, np.append(getattr(self, name), 0.0))
        self.born[-1] = self.last_seen[-1] = self.segments
        self.ever = np.append(self.ever, False)
        uid = self.next_uid
        self.uid.append(uid)
        self.next_uid += 1
        return uid

    def keep(self, places: list[int]) -> None:
        """Only the experts at these places remain, in this order."""
        for name in (*_FLOATS, "ever"):
            setattr(self, name, getattr(self, name)[places])
        self.uid = [self.uid[place] for place in places]

    def to_manifest(self, gate: list[float]) -> dict[str, Any]:
        """The manifest's `telemetry`, plain JSON values."""
        lists = {name: getattr(self, name).tolist() for name in (*_FLOATS, "ever")}
        return {
            "gate": gate,
            **lists,
            "uid": list(self.uid),
            "next_uid": self.next_uid,
            "segments": self.segments,
        }

    @classmethod
    def from_manifest(cls, saved: Any, uids: list[int]) -> Telemetry:
        """Read the manifest's `telemetry` for these uids.

        Figures that are missing or make no sense start at their defaults: a model is never refused over them.
        """
        saved = saved if isinstance(saved, dict) else {}
        telemetry = cls(len(uids))
        telemetry.uid = list(uids)
        telemetry.next_uid = max([count(saved.get("next_uid"), COUNT_MAX), *(uid + 1 for uid in uids)])
        telemetry.segments = count(saved.get("segments"), COUNT_MAX)
        for name in _FLOATS:
            figures = _figures(saved.get(name), len(uids))
            if figures is None or (name != "gate_seen" and (figures < 0).any()):
                continue
            if name in ("born", "last_seen"):  # nothing happened after now
                figures = np.minimum(figures, telemetry.segments)
            setattr(telemetry, name, figures)
        ever = saved.get("ever")
        if isinstance(ever, list) and len(ever) == len(uids):
            telemetry.ever = np.array([flag is True or flag == 1 for flag in ever])
        return telemetry


def _figures(values: Any, experts: int) -> np.ndarray | None:
    """A list of as many numbers as there are experts, as an array; None for anything else."""
    if not isinstance(values, list) or len(values) != experts:
        return None
    if any(number(value, COUNT_MAX) is None for value in values):
        return None
    return np.asarray(values, dtype=np.float64)
