"""What single panes and dialogs say, at the sizes they have to say it in."""

from __future__ import annotations

from dataclasses import replace

import fake_run as fr
import pytest
from textual.geometry import Size
from textual.widgets import Static

from minagi import protocol as p
from tui.panes.base import Frame, Pane, View
from tui.panes.depth import DepthPane
from tui.panes.header import Header
from tui.panes.loss import LossPane, _chart
from tui.panes.pool import PoolPane
from tui.panes.subjects import SubjectsPane
from tui.panes.window import WindowPane
from tui.reducers import reduce
from tui.screens.revert import _row, preview, what_goes
from tui.state import AppState, Expert, PoolView, Snapshot, initial

NOW = fr.START + 130


def state(steps: int = 1300) -> AppState:
    known = initial(fr.START)
    for event in fr.story(steps):
        known = reduce(known, event, NOW)
    return known


def test_a_curve_known_by_its_checkpoints_alone_says_so_where_there_is_room() -> None:
    past = p.Past([[100.0, 3.0, None, None], [900.0, 2.0, 2.5, 900.0]], checkpoints=2)
    known = reduce(reduce(initial(NOW), fr.hello(fresh=False, step=9, chars=900), NOW), past, NOW)
    told = [LossPane("1").subtitle(Frame(known, View(), NOW), Size(width, 9)) for width in (36, 76)]
    assert told == ["bits a character", "before ▸ drawn from a point a checkpoint · bits a character"]


def drawn(pane: Pane, known: AppState, width: int, height: int) -> str:
    frame = Frame(known, View(), NOW)
    pane.frame = frame
    return "\n".join(line.plain for line in pane.draw(frame, Size(width, height)))


# -------------------------------------------------------------------------------------------- pool


@pytest.mark.parametrize(("width", "height"), [(46, 16), (76, 8), (76, 17), (196, 54), (36, 7)])
def test_why_the_pool_did_not_grow_is_told_at_every_size(width: int, height: int) -> None:
    shown = drawn(PoolPane("3"), state(), width, height)
    assert "No growth" in shown
    if "loaded a step" in shown and height > 8:
        assert "0.4% of requests met a full expert" in shown
    assert len(shown.splitlines()) <= height
    if height > 8:
        assert "Last birth: 26, at 358k characters" in " ".join(shown.split())
        assert "Decided again in 349k characters, 70 s." in " ".join(shown.split())


def test_what_came_and_went_is_marked_in_the_map_without_colour() -> None:
    known = state(50)
    shown = drawn(PoolPane("3"), known, 76, 17)
    came = [expert for expert in known.pool.experts if expert.arrived]
    left = [expert for expert in known.pool.experts if expert.left]
    assert came and left
    lines = shown.splitlines()
    cells = lines[1 : next(place for place, line in enumerate(lines) if "came" in line)]
    assert sum(line.count("+") for line in cells) == len(came)
    assert sum(line.count("-") for line in cells) == len(left)
    assert "+ came" in shown and "- left" in shown


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (76, "×0.05 as text read before: lr 5.00e-05"),
        (46, "  read before: lr 5.00e-05"),
        (33, "  lr 5.00e-05"),
    ],
)
def test_why_the_rate_is_less_on_text_read_before_is_told_beside_it(width: int, told: str) -> None:
    known = replace(state(9), metrics=p.Metrics(step=9, lr=5e-5, again=0.05))
    assert told in drawn(DepthPane("5"), known, width, 6)
    assert "lr: what the last step took of it" in drawn(DepthPane("5"), known, 76, 30)
    first = replace(known, metrics=p.Metrics(step=9, lr=1e-3))
    assert "before" not in drawn(DepthPane("5"), first, width, 4)


def test_with_room_paging_is_explained() -> None:
    shown = drawn(PoolPane("3"), state(), 76, 30)
    for words in ("There are 8 slots", "resident: used at once", "in RAM: loaded", "on disk: read", "newborn",
                  "dying: pruned", "came in the last step", "share of recent use",
                  "% met a full one, so went without", "at 358k:"):  # fmt: skip
        assert words in " ".join(shown.split()), words


def test_every_sign_is_explained_before_anything_else_is() -> None:
    pane, known = PoolPane("3"), state()
    pane.frame = Frame(known, View(), NOW)
    pane.select(0, 0)  # which takes two lines of them
    shown = drawn(pane, known, 76, 17)
    assert "dying: pruned unless asked for" in shown and "met a full one, so went without" in shown


def test_a_pool_of_thousands_keeps_the_chosen_one_in_sight() -> None:
    known = state(50)
    experts = tuple(known.pool.experts[0]._replace(uid=uid) for uid in range(5000))
    known = replace(known, pool=replace(known.pool, experts=experts))
    pane = PoolPane("3")
    pane._uid = 4999
    shown = drawn(pane, known, 46, 12)
    assert "expert 4999" in shown
    assert len(shown.splitlines()) <= 12


def test_a_decision_without_a_sentence_still_says_something() -> None:
    known = reduce(state(50), p.Growth(born=[7], pruned=[3], chars=10), NOW)
    assert "Born 7, pruned 3." in drawn(PoolPane("3"), known, 76, 12)


# ------------------------------------------------------------------------------------------ window


def window(**changes: object) -> AppState:
    given: dict = {"context": 300, "ceiling": 1024, "gain": 0.01499, "gain_min": 0.015}
    known = reduce(initial(0.0), fr.hello(context_end=1024), NOW)
    known = reduce(known, p.Metrics(step=1, chars=256, context=256), NOW)
    known = reduce(known, p.Metrics(step=2, chars=512, context=300), NOW)
    return reduce(known, p.Window(2, 512, **{**given, **changes}), NOW)


def test_small_growth_is_told_in_figures() -> None:
    shown = drawn(WindowPane("4"), window(), 40, 8)
    assert "300 characters of 1,024" in shown and "+44 this session" in shown


def test_a_gain_just_below_its_threshold_is_not_rounded_onto_it() -> None:
    assert "+0.02163 ▽ below 0.02164" in drawn(WindowPane("4"), window(), 40, 8)


@pytest.mark.parametrize("width", [22, 31, 60])
def test_the_threshold_is_never_cut(width: int) -> None:
    shown = drawn(WindowPane("4"), window(gain=None), width, 8)
    assert "needs 0.0216 bits" in shown
    assert all(len(line) <= width for line in shown.splitlines())


@pytest.mark.parametrize(
    ("width", "told"), [(22, "gain needs 0.0216 bits"), (40, "gain needs 0.0216 bits · not known yet")]
)
def test_a_gain_that_is_not_known_yet_says_what_it_must_be(width: int, told: str) -> None:
    assert told in drawn(WindowPane("4"), window(gain=None), width, 8).splitlines()


# ------------------------------------------------------------------------------------------ header


def test_before_the_model_is_open_no_step_is_told() -> None:
    def first(known: AppState) -> str:
        return Header("header").draw(Frame(known, View(), NOW), Size(120, 2))[0].plain

    assert "step" not in first(initial(NOW)) and "read" not in first(initial(NOW))
    assert "step 50" in first(state(50))


# -------------------------------------------------------------------------------------------- loss


@pytest.mark.parametrize(("span", "same"), [(1e9, True), (4096.0, False)])
def test_the_recent_view_of_a_short_life_is_all_of_it(span: float, same: bool) -> None:
    known = initial(fr.START, span)
    for event in fr.story(100):
        known = reduce(known, event, NOW)
    recent = _chart(Frame(known, View(recent=True), NOW)).curves
    assert (recent == _chart(Frame(known, View(), NOW)).curves) is same


# ------------------------------------------------------------------------------------------ revert


def snapshot(**changes: object) -> Snapshot:
    kept = Snapshot("s1", "", "auto", fr.START, 1000, 512_000, 1.9, 24, 0)
    return kept._replace(**changes)  # type: ignore[arg-type]


def told(known: AppState, kept: Snapshot) -> str:
    return preview(kept, Frame(known, View(), NOW))


def test_what_is_lost_is_told_before_anything_happens() -> None:
    shown = told(state(), snapshot())
    assert "Loses 300 steps and 153,600 characters of reading." in shown
    assert "Held-out was 2.741 bits then and is 2.637 now, which is better." in shown
    assert "The experts are the same." in shown
    assert "can be undone" in shown


def test_a_figure_read_before_the_checkpoint_says_when() -> None:
    one, two = snapshot(held_out_step=1000), snapshot(step=1200, chars=614_400, held_out_step=1000)
    frame = Frame(state(), View(), NOW)
    assert "bits then and is" in told(state(), one) and "at 1,000" not in _row(one, frame, 76).plain
    assert "Held-out was 2.741 bits, measured 200 steps before it, and is" in told(state(), two)
    assert "held-out 2.741 at 1,000" in _row(two, frame, 76).plain


def test_what_is_lost_is_counted_along_the_ways_that_snapshots_tell_also_after_a_restart() -> None:
    """Way 1 was read to step 2000; from 1000 on it was read again, as way 7; and from 500 as way 9."""
    left = {"id": "6", "step": 2000, "chars": 200_000, "ways": [[1, 2000, 200_000]]}
    base = {"id": "3", "step": 1000, "chars": 100_000, "ways": [[1, 1000, 100_000]]}
    again = {"id": "8", "step": 1500, "chars": 150_000, "ways": [[1, 1000, 100_000], [7, 1500, 150_000]]}
    third = {"id": "9", "step": 900, "chars": 90_000, "ways": [[1, 500, 50_000], [9, 900, 90_000]]}
    old = {"id": "2", "step": 400, "chars": 40_000}
    items = [third, again, left, base, old, {"id": "x", "ways": [[1]]}, {"id": "y", "ways": "many"}]
    known = reduce(initial(NOW), fr.hello(fresh=False, step=1500, chars=150_000), NOW)
    known = reduce(known, p.Snapshots(items, present="8"), NOW)
    known = reduce(known, p.Metrics(step=1600, chars=160_000), NOW)
    assert known.snapshots is not None
    lost = {one.id: what_goes(one, known) for one in known.snapshots}
    assert lost["3"] == (600, 60_000, ""), "the present comes from it"
    assert lost["8"] == (100, 10_000, "")
    assert lost["6"] == (600, 60_000, " since the two parted at step 1,000")
    assert lost["9"] == (1100, 110_000, " since the two parted at step 500")
    assert lost["2"] == (1200, 120_000, ""), "it tells nothing: counted as before"
    assert known.snapshots[-1].ways == known.snapshots[-2].ways == ()


def expert(uid: int, age: int) -> Expert:
    return Expert(uid, "R", ".", 0.1, 1.0, age, 0, False, False, False)


def test_experts_born_and_pruned_since_are_counted_by_their_age() -> None:
    known = state()
    read = known.metrics.chars
    experts = (
        *(expert(uid, read) for uid in range(20)),
        expert(30, 10),
        expert(31, 153_599),
        expert(32, 153_600),
    )
    known = replace(known, pool=PoolView(experts))
    assert "2 experts born since are lost, 3 experts pruned since come back." in told(known, snapshot())
    assert "2 experts born since are lost." in told(known, snapshot(experts=21))


def test_a_snapshot_that_knows_little() -> None:
    shown = told(initial(0.0), snapshot(held_out=None, at=1e300, experts=0))
    assert "unknown time" in shown and "Loses 0 steps" in shown


def test_what_is_lost_on_another_way_is_counted_from_where_they_parted() -> None:
    known = reduce(state(), p.Reverted(at=fr.START + 500, step=1100, chars=563_200), NOW)
    known = reduce(known, p.Metrics(step=1130, chars=578_560), NOW)
    ahead = snapshot(kind="before-revert", at=fr.START + 499, step=1300, chars=665_600)
    assert "Loses 30 steps and 15,360 characters of reading since going back to step 1,100." in told(
        known, ahead
    )
    for born, now in ((18, ", as many as there are now."), (20, "; there are 20 now.")):
        pool = PoolView(tuple(expert(uid, 10) for uid in range(born)))
        there = snapshot(at=fr.START + 499, step=1300, chars=665_600, experts=18)
        assert f"It has 18 experts{now}" in told(replace(known, pool=pool), there)
    behind = snapshot(at=fr.START + 499, step=1110, chars=568_320)  # between: of the way that was left
    assert "Loses 30 steps" in told(known, behind)
    assert "Loses 130 steps and 66,560 characters of reading." in told(known, snapshot())
    here = snapshot(at=fr.START + 510, step=1120, chars=573_440)
    assert "Loses 10 steps and 5,120 characters of reading." in told(known, here)


def test_a_snapshot_ahead_of_a_session_is_counted_from_the_checkpoint_it_goes_on_from() -> None:
    known = reduce(initial(NOW), fr.hello(fresh=False, step=1000, chars=512_000), NOW)
    known = reduce(known, p.Metrics(step=1010, chars=517_120), NOW)
    shown = told(known, snapshot(step=2179, chars=1_115_648))
    assert "Loses 10 steps and 5,120 characters of reading, or more, since the checkpoint at step" in shown


def test_where_several_ways_were_gone_it_says_that_more_may_go() -> None:
    known = reduce(state(), p.Reverted(at=fr.START + 500, step=500, chars=256_000), NOW)
    known = reduce(known, p.Reverted(at=fr.START + 600, step=1300, chars=665_600), NOW)
    between = snapshot(at=fr.START + 599, step=700, chars=358_400)
    assert "Loses 600 steps and 307,200 characters of reading, or more: it went back 2 times." in told(
        known, between
    )
    assert "Loses 900 steps and 460,800 characters of reading." in told(
        known, snapshot(step=400, chars=204_800)
    )


def test_two_checkpoints_of_one_name_are_told_apart() -> None:
    frame, kept = Frame(state(), View(), NOW), snapshot(name="before the long poems")
    rows = {_row(kept, frame, width, newer).plain for newer in (0, 1, 2) for width in (76,)}
    assert len(rows) == 3
    assert "(older)" in _row(kept, frame, 40, 1).plain


async def test_a_list_that_is_refused_is_not_waited_for() -> None:
    async with fr.opened(fr.FakeSource([fr.hello()])) as (app, pilot):
        await pilot.press("r")
        fr.settle(app)
        assert "Asking" in str(app.screen.query_one("#preview").visual)  # type: ignore[attr-defined]
        app.fold(p.Ack(1, "snapshots?", False, "The directory cannot be read."))
        fr.settle(app)
        assert "did not come" in str(app.screen.query_one("#preview").visual)  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["r", "S"])
async def test_a_recording_has_nothing_to_go_back_to(key: str) -> None:
    fake = fr.FakeSource([fr.hello()])
    fake.recorded = True
    async with fr.opened(fake) as (app, pilot):
        await pilot.press(key)
        assert len(app.screen_stack) == 1
        assert fake.sent == []


# ---------------------------------------------------------------------------------------- subjects


def scored(now: float) -> dict[str, float | None]:
    return {"nats": now, "before": 2.0, "stderr": 0.5, "change_stderr": 0.01}


@pytest.mark.parametrize(("now", "worse"), [(2.2, True), (2.005, False), (1.8, False)])
def test_what_the_model_knows_and_does_not_read_now_stands_apart(now: float, worse: bool) -> None:
    """By the standard error of the change, which is far below that of either reading."""
    known = reduce(initial(fr.START), fr.corpus(), NOW)
    known = reduce(known, p.Subjects({"letters": {"chars": 9}, "old plays": {"chars": 700}}), NOW)
    told = p.HeldOut(nats=2.0, subjects={"letters": scored(2.0)}, elsewhere={"old plays": scored(now)})
    for event in (told, p.HeldOut(nats=1.9, subjects={"letters": scored(1.9)})):
        known = reduce(known, event, NOW)
    pane = SubjectsPane("6")
    lines = drawn(pane, known, 60, 10).splitlines()
    heading = next(place for place, line in enumerate(lines) if "not read now" in line)
    assert "日記" in lines[heading - 1]
    assert "old plays" in lines[heading + 1] and "700" in lines[heading + 1]
    assert ("▲" in lines[heading + 1]) is (now > 2.0)
    assert ("worse in 1 not read now" in pane.subtitle(Frame(known, View(), NOW), Size(60, 10))) is worse


# ----------------------------------------------------------------------------------------- dialogs


async def test_a_checkpoint_without_a_name_is_asked_for_one() -> None:
    async with fr.opened(fr.FakeSource([fr.hello()])) as (app, pilot):
        await pilot.press("S", "enter")
        shown = "\n".join(str(text.visual) for text in app.screen.query("Static").results(Static))
        assert "A name, please." in shown and "Save a checkpoint under a name" in shown


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (24, 9)])
@pytest.mark.parametrize("key", ["q", "S", "question_mark"])
async def test_every_button_of_a_dialog_is_on_the_screen(key: str, size: tuple[int, int]) -> None:
    async with fr.opened(fr.FakeSource(list(fr.story(20))), size=size) as (app, pilot):
        await pilot.press(key)
        await pilot.pause()
        buttons = list(app.screen.query("Button"))
        assert buttons
        for button in buttons:
            assert app.screen.region.contains_region(button.region), button.id
            assert button.region.height == 1
