"""Writing: greedy, held back where it repeats itself, through a window that starts over when it is full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import Home, drive

from minagi.config import Decoding
from minagi.model.decoding import REACH, Suppression
from minagi.text.alphabet import ID_OF
from minagi.training import writing as writing_module
from minagi.training.engine import Engine
from minagi.training.writing import Conversation, Writer

PLAIN = Decoding(adapt_strength=0.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    session = Home(tmp_path_factory.mktemp("writing")).open()
    drive(session, 12)
    yield session.engine
    session.close()


# ---------------------------------------------------------------------------------------- suppression


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 12), max_size=90),
    st.floats(0, 5),
    st.floats(0, 1),
    st.floats(0.5, 2),
    st.integers(0, 1000),
)
def test_suppression_is_what_the_rule_says(
    text: list[int], strength: float, decay: float, penalty: float, seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(size=13).astype(np.float32)
    suppression = Suppression(strength, decay, penalty)
    for start in range(0, len(text), 7):
        suppression.saw(text[start : start + 7])
    expected = logits.astype(np.float64)
    for symbol in set(text):
        if penalty != 1:
            expected[symbol] = (
                expected[symbol] / penalty if expected[symbol] > 0 else expected[symbol] * penalty
            )
    for age, symbol in enumerate(reversed(text[-REACH:])):
        expected[symbol] -= strength * decay**age
    chosen = suppression.choose(logits.copy())
    assert expected[chosen] == pytest.approx(expected.max(), abs=1e-4)


def test_choosing_changes_no_logits_and_ties_go_to_the_lower_id() -> None:
    logits = np.array([0.0, 2.0, 2.0, 1.0], np.float32)
    suppression = Suppression(0.0, 0.9, 2.0)
    assert suppression.choose(logits) == 1
    suppression.saw([1])
    assert suppression.choose(logits) == 2
    assert logits.tolist() == [0.0, 2.0, 2.0, 1.0]


# --------------------------------------------------------------------------------------------- writer


def written(engine: Engine, prompt: bytes, chars: int, window: int = 64, **more: object) -> list[int]:
    writer = Writer(engine, window, 0.0, PLAIN)
    return [c.id for c in writer.write(list(prompt), chars, **more)]  # type: ignore[arg-type]


def test_no_random_numbers(engine: Engine) -> None:
    first = written(engine, b"The letters", 20)
    torch.manual_seed(5)
    assert written(engine, b"The letters", 20) == first and len(first) == 20


def test_each_character_is_a_forward_of_its_own_that_votes(engine: Engine) -> None:
    writer = Writer(engine, 64, 0.0, PLAIN)
    votes = []
    for character in writer.write(list(b"Ab"), 5):
        assert 1 <= character.rows <= 3 and character.loads >= 0
        assert writer._text.vote is not None
        votes.append(float(writer._text.vote.sum()))
    assert votes == sorted(votes) and len(set(votes)) == 5
    assert writer._text.position == 6  # the last one written is read by nobody


def test_it_ends_where_it_is_told_to(engine: Engine) -> None:
    usual = written(engine, b"The letters", 20)
    end = usual[7]
    stop = usual.index(end)
    assert written(engine, b"The letters", 20, ends=(end,)) == usual[: stop + 1]
    assert written(engine, b"The letters", 1) == usual[:1]


def test_a_full_window_starts_over_from_its_last_half(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions restart at 0 with emptied caches: what follows depends on the last half alone."""
    reads: list[tuple[int, list[int]]] = []
    real = writing_module.read

    def watched(net: object, ids: torch.Tensor, forward: object) -> object:
        reads.append((forward.text.position, ids.tolist()))  # type: ignore[attr-defined]
        return real(net, ids, forward)  # type: ignore[arg-type]

    class Watched(writing_module.SingleReader):
        def read(self, symbol: int) -> tuple[np.ndarray, int]:
            reads.append((self.text.position, [symbol]))
            return super().read(symbol)

    monkeypatch.setattr(writing_module, "read", watched)
    monkeypatch.setattr(writing_module, "SingleReader", Watched)
    ids = written(engine, b"0123456", 30, window=10)
    text = [*b"0123456", *ids]
    place = 0
    restarts = 0
    for position, read_now in reads:
        assert position + len(read_now) <= 10
        if position == 0 and place:
            restarts += 1
            assert read_now == text[place - 5 : place + 1]  # half of the window, and the new one
        place += 1 if place else len(read_now)
    assert restarts >= 4


def test_what_follows_a_restart_is_what_its_text_alone_gives(engine: Engine) -> None:
    ids = written(engine, b"012345678", 8, window=10)
    text = [*b"012345678", *ids]
    # Eleven characters do not fit: the last five of ten and the eleventh begin the new text.
    assert written(engine, bytes(text[5:11]), 1, window=10) == [text[11]]


def test_a_prompt_longer_than_the_window_is_read_from_its_end(engine: Engine) -> None:
    long = b"x" * 500 + b"The letters"
    assert written(engine, long, 6, window=12) == written(engine, long[-11:], 6, window=12)


def test_a_text_that_is_gone_on_with_is_the_text_that_was_written(engine: Engine) -> None:
    """A writer that is given more to read goes on from all it holds, however each part was read."""
    writer = Writer(engine, 64, 0.0, PLAIN)
    first = [c.id for c in writer.write(list(b"The letters"), 6)]
    more = [c.id for c in writer.write(list(b" and the words"), 6)]
    assert written(engine, b"The letters", 6) == first
    assert len(more) == 6
    assert writer._text.position == 11 + 5 + 14 + 5


def test_the_smallest_windows(engine: Engine) -> None:
    for window in (0, 1, 2, 3):
        assert len(written(engine, b"Abc", 6, window=window)) == 6


# ---------------------------------------------------------------------------------------- conversation


def test_a_conversation_is_marked_as_one() -> None:
    user, end_user, bot, end_bot = (ID_OF[m] for m in (b"<user>", b"</user>", b"<bot>", b"</bot>"))
    talk = Conversation()
    assert talk.ask(np.array([1, 2])) == [user, 1, 2, end_user, bot]
    talk.answered([7, end_bot])
    talk.ask(np.array([3]))
    talk.answered([8])  # cut short: closed all the same
    assert talk.ids == [user, 1, 2, end_user, bot, 7, end_bot, user, 3, end_user, bot, 8, end_bot]
    talk.ask(np.array([4]))
    talk.answered([])
    assert talk.ids[-1] == end_bot


def test_weights_may_change_between_two_replies(tmp_path: Path) -> None:
    session = Home(tmp_path).open()
    drive(session, 5)
    first = written(session.engine, b"The letters", 12)
    drive(session, 25)
    assert written(session.engine, b"The letters", 12) != first
    session.close()
