"""What is told of an exchange before its widgets are on the screen is not lost."""

from __future__ import annotations

from dataclasses import replace

import fake_run as fr

from tui.panes.exchange import ExchangeView
from tui.state import Exchange, Reply


async def test_a_reply_that_ends_before_it_was_mounted_is_shown_as_ended() -> None:
    begun = Exchange(1, 1, "hello", replies=(Reply(phase="writing", text="so"),))
    ended = replace(begun, replies=(Reply(phase="finished", text="so it ends"),))
    async with fr.opened(fr.FakeSource([fr.hello()])) as (app, pilot):
        view = ExchangeView(begun, "notes", True, "^g")
        app.chat_pane.conversation.mount(view)
        view.show(ended, True)
        await pilot.pause()
        assert "so it ends" in str(view.query_one(".reply").visual)  # type: ignore[attr-defined]
        assert "▌" not in str(view.query_one(".reply").visual)  # type: ignore[attr-defined]
