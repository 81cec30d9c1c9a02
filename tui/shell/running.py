"""Keys that steer the run."""

from __future__ import annotations

from minagi import protocol
from tui.screens.name import NameScreen
from tui.screens.revert import RevertScreen
from tui.shell.core import Core


class Running(Core):
    """Pause, save, go back, measure, start again."""

    def action_pause(self) -> None:
        pausing = any(pending.command.type == "pause" for pending in self.state.pending)
        self.ask(protocol.Resume if self.state.phase.phase == "paused" or pausing else protocol.Pause)

    def action_checkpoint(self) -> None:
        self.ask(protocol.Checkpoint)

    def action_name_checkpoint(self) -> None:
        def save(name: str | None) -> None:
            if name:
                self.ask(protocol.Checkpoint, name=name)

        self.push_screen(NameScreen(), save)

    def action_revert(self) -> None:
        def revert(to: str | None) -> None:
            if to:
                self.ask(protocol.Revert, to=to)

        if self.ask(protocol.ListSnapshots):
            self.push_screen(RevertScreen(self.frame), revert)

    def action_evaluate(self) -> None:
        self.ask(protocol.Evaluate)

    def action_restart(self) -> None:
        if self.source.live or self.source.recorded:
            self.notify("The worker is running.", markup=False)
        else:
            self.start()
