"""Keys that steer the run."""

from __future__ import annotations

from minagi import protocol
from tui.recording import Recording
from tui.sanitise import clean_line
from tui.screens.delete import DeleteScreen
from tui.screens.name import NAME_LIMIT, NameScreen
from tui.screens.revert import RevertScreen
from tui.screens.welcome import PACE_STEPS, WelcomeScreen
from tui.shell.leaving import Leaving

REHEARSAL_SECONDS, REHEARSAL_MOST = 2.0, 20.0  # of reading, behind the first screen


class Running(Leaving):
    """Pause, save, go back, measure, start again; and the first start of a new model."""

    _rehearsed_at: float | None = None  # when the first step of a new model was told
    _rested = False  # it was paused until the key that starts it
    _listed: tuple[object, object] = (
        None,
        None,
    )  # the save and the revert after which the list was asked for

    def on_mount(self) -> None:
        if self.first_run:
            self.push_screen(WelcomeScreen(self.frame), self._after_welcome)

    def tick(self) -> None:
        super().tick()
        self._rehearse()
        if any(isinstance(screen, (RevertScreen, DeleteScreen)) for screen in self.screen_stack):
            self._list_again()

    def _rehearse(self) -> None:
        """A new model reads its first pages while the welcome stands, to find out its pace; then it waits."""
        if self._rested or not any(isinstance(screen, WelcomeScreen) for screen in self.screen_stack):
            return
        now = self.clock()
        if self._rehearsed_at is None and self.state.metrics.chars_per_second:
            self._rehearsed_at = now
            return
        read = now - self._rehearsed_at if self._rehearsed_at is not None else 0.0
        enough = self.state.metrics.step >= PACE_STEPS
        if read >= (REHEARSAL_SECONDS if enough else REHEARSAL_MOST):
            self._rested = True
            self.ask(protocol.Pause)

    def _after_welcome(self, answer: str | None) -> None:
        if answer == "leave":
            self.leave(save=False)
        elif self._rested:
            self.ask(protocol.Resume)

    def action_pause(self) -> None:
        pausing = any(pending.command.type == "pause" for pending in self.state.pending)
        self.ask(protocol.Resume if self.frame.paused or pausing else protocol.Pause)

    def action_halt(self) -> None:
        self.ask(protocol.Pause)

    def action_resume(self) -> None:
        self.ask(protocol.Resume)

    def action_checkpoint(self, name: str = "") -> None:
        self.ask(protocol.Checkpoint, name=clean_line(name, NAME_LIMIT).strip())

    def action_name_checkpoint(self) -> None:
        def save(name: str | None) -> None:
            if name:
                self.ask(protocol.Checkpoint, name=name)

        if not self.only_shown():
            self.push_screen(NameScreen(), save)

    def _list(self) -> bool:
        """Ask for the list of checkpoints; whether that could be asked."""
        self._listed = self.state.saved, self.state.reverted
        return self.ask(protocol.ListSnapshots)

    def _list_again(self) -> None:
        """A list that stands open while a checkpoint is saved or gone back to is asked for anew."""
        if self.state.snapshots is None and self._listed != (self.state.saved, self.state.reverted):
            self._list()

    def action_revert(self) -> None:
        def revert(to: str | None) -> None:
            if to:
                self.ask(protocol.Revert, to=to)

        if not self.only_shown() and self._list():
            self.push_screen(RevertScreen(self.frame), revert)

    def action_delete_checkpoint(self, wanted: str = "") -> None:
        """Ask once more before a checkpoint goes; without a name, show them all."""

        def delete(id: str | None) -> None:
            if id:
                self.ask(protocol.Delete, snapshot=id)

        if not wanted:
            self.action_revert()
        elif not self.only_shown() and self._list():
            self.push_screen(DeleteScreen(self.frame, clean_line(wanted, NAME_LIMIT).strip()), delete)

    def action_evaluate(self) -> None:
        self.ask(protocol.Evaluate)

    def action_restart(self) -> None:
        if isinstance(self.source, Recording):
            self._wind(float("-inf"))
        elif self.source.live:
            self.notify("The worker is running.", markup=False)
        else:
            self.start()

    # --------------------------------------------------------------------------- of a recording

    def action_pace(self, doublings: int) -> None:
        if isinstance(self.source, Recording):
            self.source.hasten(doublings)
            self.tick()

    def action_seek(self, seconds: float) -> None:
        """So many seconds on or back, of those that pass on the clock."""
        if isinstance(self.source, Recording):
            self._wind(seconds * max(1.0, self.source.speed))

    def _wind(self, seconds: float) -> None:
        assert isinstance(self.source, Recording)
        self.source.seek(seconds)
        if not self.source.live:
            self.start()
