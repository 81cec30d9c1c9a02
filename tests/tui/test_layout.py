"""Panes never overlap, never stick out, and the chosen one is always there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui.keymap import PANES
from tui.layout import arrange


@given(st.integers(1, 400), st.integers(1, 150), st.sampled_from(PANES), st.booleans())
def test_panes_tile_the_screen(width: int, height: int, chosen: str, maximised: bool) -> None:
    placed = arrange(width, height, chosen, maximised)
    assert chosen in placed
    regions = list(placed.values())
    for place, region in enumerate(regions):
        assert region.x >= 0 and region.y >= 0
        assert region.right <= width and region.bottom <= height
        assert not any(region.overlaps(other) for other in regions[place + 1 :])
    if maximised:
        assert list(placed) == [chosen]


def test_the_sizes_of_the_design() -> None:
    assert set(arrange(120, 37, "loss")) == set(PANES)
    assert set(arrange(200, 57, "loss")) == set(PANES)
    assert set(arrange(80, 20, "loss")) == {"loss", "chat"}
    assert set(arrange(80, 20, "pool")) == {"pool", "chat"}
    assert set(arrange(40, 9, "memory")) == {"memory"}


def test_the_space_is_used() -> None:
    for width, height in ((120, 37), (200, 57), (80, 20)):
        area = sum(region.area for region in arrange(width, height, "loss").values())
        assert area == width * height
