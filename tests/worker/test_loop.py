from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Generator, Iterator
from dataclasses import replace

import pytest
from worker_fakes import FakeChannel, FakeTrainer

from minagi import protocol
from minagi.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, MinagiError, UsageError
from minagi.protocol import (
    Ack,
    Cancel,
    Checkpoint,
    Continue,
    Evaluate,
    Failure,
    Goodbye,
    Hello,
    ListSnapshots,
    Log,
    Message,
    NewChat,
    Pause,
    Phase,
    Probe,
    ReplyChunk,
    ReplyEnded,
    ReplyStarted,
    Resume,
    Revert,
    Set,
    Stop,
    Write,
)
from minagi.training.request import Limits
from minagi.worker.loop import run
from minagi.worker.serve import serve
from minagi.worker.signals import INTERRUPT, Hurried, Signals, loading


def drive(*script: list, trainer: FakeTrainer | None = None, limits: Limits | None = None) -> tuple:
    trainer, channel = trainer or FakeTrainer(), FakeChannel(*script)
    goodbye = run(trainer, channel, limits or Limits())
    return trainer, channel, goodbye


def test_it_greets_first_and_steps_until_told_to_stop() -> None:
    trainer, channel, goodbye = drive([], [], [Stop(id=3)])
    assert isinstance(channel.sent[0], Hello)
    assert trainer.calls == ["greet", "step", "step", ("checkpoint", "", "final")]
    assert channel.of(Ack) == [Ack(id=3, command="stop", text="Stopping.")]
    assert goodbye == Goodbye(reason="asked to stop", saved=True, step=9, chars=900)


def test_a_paused_run_tells_of_the_checkpoint_that_became_complete() -> None:
    trainer = FakeTrainer()
    saved = protocol.Saved(snapshot="3", kind="auto")
    trainer.meanwhile = [saved]
    _, channel, _ = drive([Pause(id=1)], [], trainer=trainer)
    assert channel.of(protocol.Saved)[0] == saved


def test_stop_without_saving() -> None:
    trainer, _, goodbye = drive([], [Stop(save=False)])
    assert trainer.calls == ["greet", "step"]
    assert not goodbye.saved


def test_a_dry_run_saves_nothing_and_refuses_to() -> None:
    trainer, channel, goodbye = drive([Checkpoint(id=1)], [Stop()], trainer=FakeTrainer(dry_run=True))
    assert trainer.calls == ["greet", "step"]
    assert [ack.ok for ack in channel.of(Ack)] == [False, True]
    assert not goodbye.saved


def test_the_end_of_the_other_side_saves_and_leaves() -> None:
    trainer, _, goodbye = drive([], [])
    assert trainer.calls[-1] == ("checkpoint", "", "final")
    assert goodbye.reason == "the script is over"


def test_nothing_new_is_not_saved_again() -> None:
    trainer, _, goodbye = drive([], [Checkpoint(id=1, name="mine"), Stop()])
    assert [call for call in trainer.calls if call[0] == "checkpoint"] == [("checkpoint", "mine", "asked")]
    assert goodbye.saved


def test_a_name_that_another_checkpoint_has_is_told() -> None:
    def told(trainer: FakeTrainer) -> list[str]:
        _, channel, _ = drive([], [Checkpoint(id=1, name="mine"), Stop()], trainer=trainer)
        return [log.text for log in channel.of(protocol.Log) if "named “mine”" in log.text]

    class Twice(FakeTrainer):
        def snapshots(self) -> protocol.Snapshots:
            return protocol.Snapshots(items=[{"id": "b", "name": "mine"}, {"id": "a", "name": "mine"}])

    assert told(FakeTrainer()) == []
    (text,) = told(Twice())
    assert text.startswith("Another checkpoint is named “mine” too")


def test_pause_stops_the_steps_and_everything_else_works() -> None:
    reply = [Write(id=2, prompt="hi", chars=2)], [], [], []
    trainer, channel, _ = drive(
        [], [Pause(id=1)], *reply, [Evaluate(id=3)], [Resume(id=4)], [Stop(id=5)]
    )  # fmt: skip
    assert trainer.calls.count("step") == 2
    assert trainer.calls.index(("reply", "hi")) < trainer.calls.index("evaluate")
    phases = [phase.phase for phase in channel.of(Phase)]
    assert phases == [
        "running", "paused", "writing", "paused", "evaluating", "paused", "running", "stopping",
        "saving",
    ]  # fmt: skip
    assert [ack.id for ack in channel.of(Ack)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("command", "call", "event"),
    [
        (Checkpoint(id=1, name="n"), ("checkpoint", "n", "asked"), protocol.Saved),
        (ListSnapshots(id=1), "snapshots", protocol.Snapshots),
        (Revert(id=1, to="a"), ("revert", "a"), protocol.Reverted),
        (protocol.Delete(id=1, snapshot="a"), ("delete", "a"), protocol.Snapshots),
        (Evaluate(id=1), "evaluate", protocol.HeldOut),
        (Probe(id=1, text="x"), "probe", protocol.Probed),
        (Set(id=1, key="k", value=2.0), ("set", "k", 2.0), Ack),
        (NewChat(id=1), "new_chat", Ack),
    ],
)
def test_commands_are_carried_out_and_then_acknowledged(
    command: protocol.Command, call: object, event: type
) -> None:
    trainer, channel, _ = drive([command], [Stop(id=2)])
    assert call in trainer.calls
    kinds = [type(message) for message in channel.sent]
    assert kinds.index(event) <= kinds.index(Ack)
    assert channel.of(Ack)[0].ok
    assert channel.of(Ack)[0].command == command.type


REFUSED = [
    Revert(id=1, to="nowhere"),
    Set(id=1, key="nonsense"),
    Set(id=1, key="adapt_strength", value=math.inf),
    Cancel(id=1),
    Write(id=1, prompt=""),
    Write(id=1, prompt="x", chars=0),
    Continue(id=1, chars=0),
    Write(id=1, prompt="x", chars=10**9),
    Write(id=1, prompt="x", strength=-1.0),
    Write(id=1, prompt="x", strength=math.nan),
    Probe(id=1, text="x", strength=-1.0),
]


@pytest.mark.parametrize("command", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_told_and_the_run_goes_on(command: protocol.Command) -> None:
    trainer, channel, _ = drive([command], [], [Stop(id=2)])
    first, last = channel.of(Ack)
    assert (first.id, first.ok) == (1, False)
    assert first.text.endswith(".")
    assert (last.id, last.ok) == (2, True)
    assert trainer.calls.count("step") == 2
    assert not channel.of(ReplyStarted, ReplyEnded)


def test_a_full_disk_at_a_checkpoint_asked_for_is_told_and_the_run_goes_on() -> None:
    trainer = FakeTrainer()
    trainer.faults["checkpoint"] = OSError(28, "No space left on device")
    _, channel, goodbye = drive([], [Checkpoint(id=1)], [Stop(id=2)], trainer=trainer)
    assert "No space left" in channel.of(Ack)[0].text
    assert goodbye.saved


def test_a_reply_is_streamed_between_two_steps() -> None:
    trainer, channel, _ = drive([], [Write(id=9, prompt="hi")], *[[]] * 6, [Stop()])
    kinds = [type(message) for message in channel.sent if message.type.startswith(("reply", "ack"))]
    assert kinds == [Ack, ReplyStarted, *[ReplyChunk] * 5, ReplyEnded, Ack]
    assert "".join(chunk.data for chunk in channel.of(ReplyChunk)) == "hello"
    assert trainer.calls.index("step") < trainer.calls.index(("reply", "hi"))
    assert "reply closed" in trainer.calls


def test_cancel_ends_a_reply_at_the_next_character() -> None:
    trainer, channel, _ = drive([Write(id=9, prompt="hi")], [], [], [Cancel(id=10)], [Stop()])
    assert trainer.calls.count("character") == 2
    (ended,) = channel.of(ReplyEnded)
    assert (ended.id, ended.reason, ended.chars) == (9, "cancelled", 2)
    assert "reply closed" in trainer.calls
    assert Ack(id=10, command="cancel", text="Cancelled.") in channel.sent
    assert trainer.calls.count("step") == 1


def test_a_reply_that_goes_on_is_streamed_as_any_other() -> None:
    trainer, channel, _ = drive([], [Continue(id=9, chars=3)], *[[]] * 6, [Stop()])
    assert channel.of(Ack)[0] == Ack(id=9, command="continue")
    assert "".join(chunk.data for chunk in channel.of(ReplyChunk)) == "hel"
    assert trainer.calls.count("reply closed") == 1


def both(trainer: FakeTrainer) -> None:
    """Let the trainer answer twice."""
    once = trainer.reply

    def twice(command: Write) -> Iterator[protocol.Message]:
        for variant in ("adapted", "raw"):
            for message in once(command):
                yield replace(message, variant=variant)  # type: ignore[call-arg]

    trainer.reply = twice  # type: ignore[method-assign, assignment]


def test_two_replies_to_one_prompt_each_end_by_themselves() -> None:
    trainer = FakeTrainer()
    both(trainer)
    _, channel, _ = drive([Write(id=9, prompt="hi", both=True)], *[[]] * 20, [Stop()], trainer=trainer)
    ends = [(ended.variant, ended.reason) for ended in channel.of(ReplyEnded)]
    assert ends == [("adapted", "finished"), ("raw", "finished")]


def test_cancelling_the_second_of_two_replies_names_it() -> None:
    trainer = FakeTrainer()
    both(trainer)
    script = [[Write(id=9, prompt="hi", both=True)], *[[]] * 8, [Cancel(id=10)], [Stop()]]
    _, channel, _ = drive(*script, trainer=trainer)
    first, second = channel.of(ReplyEnded)
    assert (first.variant, first.reason) == ("adapted", "finished")
    assert (second.variant, second.reason) == ("raw", "cancelled")
    assert 0 < second.chars < 5


def test_nothing_is_cancelled_behind_the_end_of_a_reply() -> None:
    _, channel, _ = drive([Write(id=9, prompt="hi")], *[[]] * 6, [Cancel(id=10)], [Stop(id=11)])
    assert [e.reason for e in channel.of(ReplyEnded)] == ["finished"]
    assert [(ack.id, ack.ok) for ack in channel.of(Ack)] == [(9, True), (10, False), (11, True)]


def test_commands_heard_while_writing_are_done_at_once_or_wait_their_turn() -> None:
    script = [
        [Write(id=1, prompt="a")],
        [Pause(id=2), Evaluate(id=3), Write(id=4, prompt="b"), Set(id=5, key="k")],
    ]
    trainer, channel, _ = drive(*script, *[[] for _ in range(12)], [Stop(id=6)])
    assert [ack.id for ack in channel.of(Ack)] == [1, 2, 5, 3, 4, 6]
    assert [event.id for event in channel.of(ReplyEnded)] == [1, 4]
    assert "step" not in trainer.calls, "paused from the first reply on"


def test_stop_cancels_a_reply() -> None:
    trainer, channel, goodbye = drive([Write(id=1, prompt="a")], [], [Stop(id=2)])
    assert channel.of(ReplyEnded)[0].reason == "cancelled"
    assert goodbye.reason == "asked to stop"
    assert "step" not in trainer.calls


def test_the_other_side_going_away_cancels_a_reply() -> None:
    trainer, channel, _ = drive([Write(id=1, prompt="a")])
    assert trainer.calls.count("character") == 0
    assert channel.of(ReplyEnded)[0].reason == "cancelled"


def test_commands_are_heard_between_the_slices_of_a_measurement() -> None:
    trainer = FakeTrainer()
    trainer.slices = 5
    talk: list[list[protocol.Command]] = [[NewChat(id=3), Write(id=4, prompt="hi", chars=1)], [], []]
    later = [[Revert(id=5), Checkpoint(id=6)], *[[]] * 9, [Stop(id=7)]]
    script = [[Evaluate(id=1)], [Pause(id=2)], *talk, *later]
    trainer, channel, _ = drive(*script, trainer=trainer)
    assert [ack.id for ack in channel.of(Ack)] == [2, 3, 4, 1, 5, 6, 7], "a revert waits"
    assert all(ack.ok for ack in channel.of(Ack))
    assert trainer.calls.count("slice") == 5
    assert "step" not in trainer.calls
    phases = [phase.phase for phase in channel.of(Phase)]
    assert phases[:4] == ["evaluating", "writing", "evaluating", "reverting"]


@pytest.mark.parametrize("command", [Cancel(id=2), Stop(id=2)])
def test_a_measurement_is_broken_off(command: protocol.Command) -> None:
    trainer = FakeTrainer()
    trainer.slices = 50
    trainer, channel, _ = drive([Evaluate(id=1)], [], [command], [], [Stop(id=3)], trainer=trainer)
    assert trainer.calls.count("slice") == 2
    assert "evaluate closed" in trainer.calls
    assert not channel.of(protocol.HeldOut)
    assert [ack.id for ack in channel.of(Ack)][:2] == [2, 1]


def test_a_stop_that_a_reply_inside_a_measurement_heard_ends_both() -> None:
    trainer = FakeTrainer()
    trainer.slices = 50
    script = [[Evaluate(id=1)], [Write(id=2, prompt="hi")], [], [Stop(id=3)]]
    trainer, channel, goodbye = drive(*script, trainer=trainer)
    assert trainer.calls.count("slice") == 1
    assert channel.of(ReplyEnded)[0].reason == "cancelled"
    assert goodbye.reason == "asked to stop"


def test_a_reading_in_slices_is_one_phase() -> None:
    trainer = FakeTrainer()

    def begin_and_end(steps: int) -> None:
        trainer.phase = "evaluating" if 8 <= steps < 11 else "running"

    trainer.on_step = begin_and_end
    _, channel, _ = drive(*[[]] * 6, trainer=trainer)
    phases = [phase.phase for phase in channel.of(Phase)]
    assert phases == ["running", "evaluating", "running", "stopping", "saving"]


def test_a_reply_that_fails_midway_ends_in_words() -> None:
    trainer = FakeTrainer()
    trainer.faults["character"] = MinagiError("The card is full.")
    _, channel, _ = drive([Write(id=1, prompt="a")], [], [], [Stop()], trainer=trainer)
    assert channel.of(ReplyEnded)[0].reason == "failed"
    assert channel.of(Log)[0].text == "The card is full."


def test_the_trainers_own_phases_are_followed_by_the_loops() -> None:
    trainer = FakeTrainer()
    step = trainer.step
    trainer.step = lambda: [Phase(phase="evaluating"), *step()]  # type: ignore[method-assign, assignment]
    _, channel, _ = drive([], [], trainer=trainer)
    assert [phase.phase for phase in channel.of(Phase)][:4] == ["running", "evaluating"] * 2


def test_a_run_that_is_over_measures_what_it_came_to_and_says_so() -> None:
    trainer = FakeTrainer()
    trainer.slices, trainer.last_words = 2, [Log(text="It gained.")]
    channel = FakeChannel(closes=False)
    goodbye = run(trainer, channel, Limits(steps=1))
    assert trainer.calls[1:] == [
        "step", "evaluate", "slice", "slice", "evaluate closed", ("checkpoint", "", "final"),
    ]  # fmt: skip
    kinds = [type(message) for message in channel.sent]
    assert kinds.index(protocol.HeldOut) < kinds.index(Log) < kinds.index(protocol.Saved)
    assert goodbye.reason == "1 steps were made"


@pytest.mark.parametrize(("known", "again"), [(3.0, True), (2.0, False)])
def test_a_reading_at_the_end_is_kept_where_the_last_step_was_saved_before_it(
    known: float, again: bool
) -> None:
    trainer = FakeTrainer()

    step = trainer.step

    def saving() -> Iterator[Message]:
        """A step and, as after a birth, a checkpoint that is written while the run goes on."""
        yield from step()
        trainer.unsaved_chars = 0
        trainer.last_words = [protocol.Saved(kind="auto", step=trainer.steps, held_out=known)]

    trainer.step = saving  # type: ignore[method-assign]
    run(trainer, FakeChannel(closes=False), Limits(steps=1))
    assert (("checkpoint", "", "final") in trainer.calls) is again


def test_a_run_of_no_steps_saves_nothing() -> None:
    trainer = FakeTrainer()
    run(trainer, FakeChannel(closes=False), Limits(chars=0))
    assert "evaluate" in trainer.calls and ("checkpoint", "", "final") not in trainer.calls


def test_what_cannot_be_measured_at_the_end_holds_nothing_up() -> None:
    trainer = FakeTrainer()
    trainer.faults["evaluate"] = UsageError("There is no held-out text.")
    assert run(trainer, FakeChannel(closes=False), Limits(steps=1)).reason == "1 steps were made"


def test_a_run_that_is_called_away_does_not_stay_to_measure() -> None:
    trainer, signals = FakeTrainer(), Signals()
    trainer.on_step = lambda steps: signals._on_signal(15, None)
    served(trainer, *[[]] * 9, signals=signals)
    assert "evaluate" not in trainer.calls
    trainer, signals = FakeTrainer(), Signals()
    trainer.slices = 1000
    evaluate = trainer.evaluate

    def interrupted() -> Generator[Message, None, None]:
        signals._on_signal(15, None)
        return evaluate()

    trainer.evaluate = interrupted  # type: ignore[method-assign]
    assert "stopped by" in run(trainer, FakeChannel(closes=False), Limits(steps=1), signals).reason
    assert trainer.calls.count("slice") == 1


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        (Limits(steps=3), 3),
        (Limits(chars=250), 3),
        (Limits(passes=0.5), 5),
        (Limits(chars=250, steps=2), 2),
        (Limits(steps=2, passes=100.0, minutes=1000.0), 2),
    ],
)
def test_the_first_limit_reached_ends_the_run(limits: Limits, steps: int) -> None:
    trainer, channel = FakeTrainer(), FakeChannel(*[[]] * 50, closes=False)
    goodbye = run(trainer, channel, limits)
    assert trainer.calls.count("step") == steps
    assert goodbye.saved
    assert goodbye.reason


def test_minutes_are_of_the_clock() -> None:
    ticks = iter(range(0, 10_000, 20))
    trainer, channel = FakeTrainer(), FakeChannel(closes=False)
    goodbye = run(trainer, channel, Limits(minutes=1.0), clock=lambda: float(next(ticks)))
    assert trainer.calls.count("step") == 2
    assert "1 minutes are over" in goodbye.reason


# ------------------------------------------------------------------------------------------- serve


def served(trainer: FakeTrainer, *script: list, signals: Signals | None = None) -> tuple[int, FakeChannel]:
    channel = FakeChannel(*script)
    status = serve(lambda: trainer, channel, Limits(steps=5), signals or Signals(), log="/tmp/the.log")
    return status, channel


def test_serve_says_goodbye_last_and_closes() -> None:
    trainer = FakeTrainer()
    status, channel = served(trainer, *[[]] * 9)
    assert status == EXIT_OK
    assert isinstance(channel.sent[-1], Goodbye)
    assert trainer.closed
    assert channel.finished


def test_a_session_that_cannot_open_fails_with_its_status() -> None:
    def refuse() -> FakeTrainer:
        raise UsageError("There is nothing to read.")

    channel = FakeChannel()
    assert serve(refuse, channel, Limits(), Signals()) == 2
    assert channel.sent == [Failure(text="There is nothing to read.", saved=False, exit_status=2)]


def test_a_fault_in_a_step_saves_first() -> None:
    trainer = FakeTrainer()
    trainer.on_step = lambda steps: trainer.faults.update(step=MinagiError("The text is gone."))
    status, channel = served(trainer, [], [], [])
    assert status == EXIT_FAILED
    assert channel.sent[-1] == Failure(text="The text is gone.", saved=True, exit_status=1)
    assert ("checkpoint", "", "final") in trainer.calls
    assert trainer.closed


def test_a_defect_is_logged_whole_and_told_in_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    trainer = FakeTrainer()
    trainer.on_step = lambda steps: trainer.faults.update(step=ZeroDivisionError("oh\nno"))
    status, channel = served(trainer, [], [], [])
    assert status == EXIT_FAILED
    failure = channel.sent[-1]
    assert isinstance(failure, Failure)
    assert failure.saved
    assert "ZeroDivisionError: oh no" in failure.text
    assert "/tmp/the.log" in failure.text
    assert "Traceback" in caplog.text


def test_a_defect_and_a_save_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    trainer = FakeTrainer()
    trainer.on_step = lambda steps: trainer.faults.update(
        step=ValueError("x"), save=OSError(5, "Input/output error")
    )
    trainer.faults["close"] = OSError(5, "Input/output error")
    status, channel = served(trainer, [], [], [])
    assert status == EXIT_FAILED
    assert not channel.sent[-1].saved  # type: ignore[attr-defined]
    assert "could not be saved" in caplog.text


def test_a_final_save_that_fails_is_a_failure() -> None:
    trainer = FakeTrainer()
    trainer.faults["save"] = MinagiError("The disk is full. Make room and start again.")
    status, channel = served(trainer, [], [Stop()])
    assert status == EXIT_FAILED
    assert channel.sent[-1] == Failure(text="The disk is full. Make room and start again.", saved=False)


def test_a_signal_finishes_the_step_and_saves() -> None:
    trainer, signals = FakeTrainer(), Signals()
    trainer.on_step = lambda steps: signals._on_signal(15, None)
    status, channel = served(trainer, *[[]] * 9, signals=signals)
    assert status == EXIT_INTERRUPTED
    assert trainer.calls == ["greet", "step", ("checkpoint", "", "final"), "close"]
    assert channel.sent[-1] == Goodbye(reason="stopped by SIGTERM", saved=True, step=8, chars=800)


def test_a_second_signal_breaks_off_a_step_and_does_not_save() -> None:
    trainer, signals = FakeTrainer(), Signals()

    def twice(steps: int) -> None:
        signals._on_signal(2, None)
        signals._on_signal(2, None)

    trainer.on_step = twice
    status, channel = served(trainer, *[[]] * 9, signals=signals)
    assert status == EXIT_INTERRUPTED
    assert trainer.calls == ["greet", "step", "close"]
    goodbye = channel.sent[-1]
    assert isinstance(goodbye, Goodbye)
    assert not goodbye.saved
    assert "100 characters" in goodbye.reason


def test_what_a_save_under_way_holds_is_not_lost_to_a_second_signal() -> None:
    trainer, signals = FakeTrainer(), Signals()

    def twice(steps: int) -> None:
        signals._on_signal(2, None)
        signals._on_signal(2, None)

    def close() -> None:
        trainer.calls.append("close")
        trainer.unsaved_chars = 0  # the save that was begun is complete

    trainer.on_step, trainer.close = twice, close  # type: ignore[method-assign]
    _, channel = served(trainer, *[[]] * 9, signals=signals)
    goodbye = channel.sent[-1]
    assert isinstance(goodbye, Goodbye) and goodbye.saved
    assert trainer.calls.count("close") == 1


def test_a_second_signal_waits_for_a_save_under_way() -> None:
    trainer, signals = FakeTrainer(), Signals()
    save = trainer.checkpoint

    def slow(name: str = "", kind: str = "asked") -> list:
        signals._on_signal(2, None)
        signals._on_signal(2, None)
        return save(name, kind)

    trainer.checkpoint = slow  # type: ignore[method-assign]
    status, channel = served(trainer, [], [Checkpoint(id=1)], signals=signals)
    assert status == EXIT_INTERRUPTED
    assert channel.of(protocol.Saved)
    assert channel.of(Ack)[0].ok


def test_a_second_signal_waits_for_a_save_that_a_step_began() -> None:
    trainer, signals = FakeTrainer(), Signals()

    def save(steps: int) -> None:
        with trainer.guarded():
            signals._on_signal(15, None)
            signals._on_signal(15, None)
            trainer.calls.append("saved")
        trainer.unsaved_chars = 0
        trainer.calls.append("told")

    trainer.on_step = save
    status, channel = served(trainer, *[[]] * 9, signals=signals)
    assert status == EXIT_INTERRUPTED
    assert trainer.calls == ["greet", "step", "saved", "told", "close"]
    assert channel.sent[-1] == Goodbye(reason="stopped by SIGTERM", saved=True, step=8, chars=800)


def test_what_may_be_broken_off_may_be_again_after_what_may_not() -> None:
    signals = Signals()
    with signals.breakable():
        with signals.unbreakable():
            signals._on_signal(2, None)
            signals._on_signal(2, None)
        with pytest.raises(Hurried):
            signals._on_signal(2, None)
    signals._on_signal(2, None)
    with pytest.raises(Hurried), signals.breakable():
        raise AssertionError("never begun")


def test_a_second_signal_while_opening() -> None:
    signals = Signals()
    signals._on_signal(2, None)
    signals._on_signal(2, None)
    channel = FakeChannel()
    assert serve(FakeTrainer, channel, Limits(), signals) == EXIT_INTERRUPTED
    assert isinstance(channel.sent[-1], Goodbye)


def test_a_library_that_fails_at_a_second_signal_is_no_defect() -> None:
    signals, channel = Signals(), FakeChannel()

    def load() -> FakeTrainer:
        for _ in range(2):
            with contextlib.suppress(Hurried):  # as native code does that looks only for an error of its own
                signals._on_signal(2, None)
        raise ImportError("cannot load module more than once per process")

    assert serve(load, channel, Limits(), signals) == EXIT_INTERRUPTED
    assert isinstance(channel.sent[-1], Goodbye)


def test_no_signal_breaks_into_a_library_that_is_being_loaded() -> None:
    """Native code may end the process where an exception comes that it does not look for."""
    loaded: list[str] = []
    with Signals() as signals, signals.breakable():
        with pytest.raises(Hurried), loading():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            loaded.append("whole")
        assert signals.received == "SIGTERM"
    with pytest.raises(KeyboardInterrupt), loading():
        INTERRUPT(signal.SIGINT, None)
        loaded.append("whole")
    assert loaded == ["whole", "whole"]


def test_hurried_is_no_exception() -> None:
    assert not issubclass(Hurried, Exception)
