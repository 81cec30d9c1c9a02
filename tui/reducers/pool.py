"""The pool of experts: where each one is, what came and went, who was born and who died."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat

from minagi.protocol import Growth, Pool
from tui.reducers.log import alert
from tui.reducers.training import marked
from tui.sanitise import number, numbers, wholes
from tui.state import PARENTS_LIMIT, AppState, Expert, Mark, PoolView

BIRTHS_KEPT = 8


def pool(state: AppState, event: Pool, now: float) -> AppState:
    """The whole pool as it is now."""
    uids = wholes(event.uids)
    before = {expert.uid for expert in state.pool.experts if expert.tier == "R"}
    admitted, arrived = set(wholes(event.admitted)), set(wholes(event.arrived))
    columns = zip(
        uids, chain(event.tier, repeat("D")), chain(event.life, repeat(".")),
        chain(numbers(event.use), repeat(0.0)), chain(numbers(event.gate), repeat(0.0)),
        chain(wholes(event.age_chars), repeat(0)), chain(wholes(event.unseen_texts), repeat(0)),
        strict=False,
    )  # fmt: skip
    experts = [
        Expert(
            uid, tier if tier in "RMD" else "D", life if life in "nd" else ".", use, gate, age, unseen,
            uid in admitted, uid in arrived, uid in before and tier != "R",
        )
        for uid, tier, life, use, gate, age, unseen in columns
    ]  # fmt: skip
    parents = dict(state.pool.parents)
    for name, of in event.parents.items():
        if name.isascii() and name.isdigit() and len(name) < 16:
            parents[int(name)] = tuple(wholes(of)[:32])
    view = PoolView(
        experts=tuple(experts),
        counts={
            "resident": sum(e.tier == "R" for e in experts),
            "ram": sum(e.tier == "M" for e in experts),
            "disk": sum(e.tier == "D" for e in experts),
            "newborn": sum(e.life == "n" for e in experts),
            "dying": sum(e.life == "d" for e in experts),
        },
        arrived=tuple(e.uid for e in experts if e.arrived),
        left=tuple(e.uid for e in experts if e.left),
        loads_per_step=number(event.loads_per_step),
        ram_hit_rate=number(event.ram_hit_rate),
        dropped_share=number(event.dropped_share),
        parents=dict(list(parents.items())[-PARENTS_LIMIT:]),
    )
    return replace(state, pool=view)


def growth(state: AppState, event: Growth, now: float) -> AppState:
    """A decision about the pool's size; the worker says it in the log itself."""
    born, pruned = wholes(event.born), wholes(event.pruned)
    state = replace(state, growth=event)
    if not born and not pruned:
        return state
    state = replace(
        state,
        births=(*state.births[1 - BIRTHS_KEPT :], event),
        curves=marked(state.curves, Mark(event.chars, "born" if born else "pruned")),
    )
    told = [f"{_named(born)} born"] if born else []
    told += [f"{_named(pruned)} pruned"] if pruned else []
    return alert(state, "quiet", "; ".join(told), bell=True)


def _named(uids: list[int]) -> str:
    shown = ", ".join(str(uid) for uid in uids[:6])
    more = f" and {len(uids) - 6} more" if len(uids) > 6 else ""
    return f"{'Expert' if len(uids) == 1 else 'Experts'} {shown}{more}"
