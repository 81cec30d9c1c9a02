"""One character at a time must be what `read` makes of it: numbers, rows, votes, admissions, the cache."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from packing import needs_packing
from tiny import Case, Tiny, case_of, cases, make

from minagi.model import packed, single
from minagi.model.cache import Text
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.model.single import SingleReader, serves

PROMPT = 3


def begun(tiny: Tiny) -> Text:
    """A text that holds the first characters of the case."""
    text = tiny.net.new_text(1)
    read(tiny.net, torch.tensor(tiny.case.ids[:PROMPT]), tiny.forward(text=text))
    return text


def slowly(tiny: Tiny, text: Text, symbol: int) -> tuple[np.ndarray, int]:
    got = read(tiny.net, torch.tensor([symbol]), Forward(tiny.pool, text, tiny.case.routing))
    return got.logits[-1].numpy(), int(got.rows[-1])


def same(case: Case, dtype: torch.dtype = torch.float32, atol: float = 2e-4) -> None:
    """Two models of the case, read on in both ways, agree on every character and on what is kept."""
    slow, fast = make(case, dtype), make(case, dtype)
    texts = begun(slow), begun(fast)
    reader = SingleReader(fast.net, fast.pool, case.routing, texts[1])
    for symbol in case.ids[PROMPT:]:
        wanted, rows = slowly(slow, texts[0], symbol)
        logits, taken = reader.read(symbol)
        assert taken == rows
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=atol)
        assert texts[0].position == texts[1].position
        np.testing.assert_allclose(texts[1].vote, texts[0].vote, rtol=0, atol=atol)
        assert sorted(fast.pool.resident()) == sorted(slow.pool.resident())
        assert fast.pool.loads == slow.pool.loads
    reader.give_back()
    for mine, theirs in zip(texts[1].keys_and_values(), texts[0].keys_and_values(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases(freeze=True, characters=(PROMPT + 1, 12)))
def test_it_reads_what_read_reads(case: Case) -> None:
    same(case)


class Eager:
    """Helpers that are through with everything before the reader begins."""

    def __init__(self, *_: object, **__: object) -> None:
        self.threads = ThreadPoolExecutor(1)

    def submit(self, work: Callable[..., int], *given: object) -> Future[int]:
        future = self.threads.submit(work, *given)
        future.result(10)
        return future


class Stuck:
    """Helpers that take one expert each and are never heard of again, as on a busy machine."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, work: Callable[..., int], take: Callable[[], int]) -> Future[int]:
        with suppress(IndexError):
            take()
        return Future()


@pytest.mark.parametrize("helpers", [ThreadPoolExecutor, Eager, Stuck])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(cases(freeze=True, characters=(PROMPT + 1, 8)))
def test_shared_among_threads_it_is_the_same(helpers: type, case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single, "LARGE", 1)
        patch.setattr(single, "ThreadPoolExecutor", helpers)
        patch.setattr(torch, "get_num_threads", lambda: 3)
        same(case)


def test_bf16_stays_close() -> None:
    """Everything is multiplied in fp32 here, in bf16 there: eight bits apart."""
    same(case_of(characters=6, experts=2, resident=2, top_k=2, max_steps=2, min_steps=2), torch.bfloat16, 0.2)


@needs_packing
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("depth", [1, 2])
def test_packed_experts_give_what_bf16_gives(
    threads: int, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single, "LARGE", 1)
    monkeypatch.setattr(packed, "pays", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    settled = {"experts": 2, "resident": 2, "top_k": 2, "max_steps": 2, "min_steps": 2}
    same(case_of(characters=6, expert_depth=depth, **settled), torch.bfloat16, 0.2)


@needs_packing
def test_packed_experts_are_packed_again_when_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "LARGE", 1)
    monkeypatch.setattr(packed, "pays", lambda: True)
    case = case_of(characters=8)
    tiny = make(case, torch.bfloat16)
    text = begun(tiny)
    reader = SingleReader(tiny.net, tiny.pool, case.routing, text)
    reader.read(case.ids[PROMPT])
    (slot, before), *_ = reader._experts.items()
    x = np.ones(case.shape.d_model, np.float32)
    assert reader._expert(slot) is before  # nothing changed: not packed twice
    tiny.pool.slots.levels[0].up.mul_(2)
    tiny.pool.slots.refresh([slot])
    np.testing.assert_allclose(reader._expert(slot)[0][0](x), 2 * before[0][0](x), rtol=0.02)


def test_the_text_can_be_read_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single, "ThreadPoolExecutor", None)  # small experts are shared with nobody
    case = case_of(characters=12, experts=5, resident=3)
    slow, fast = make(case), make(case)
    texts = begun(slow), begun(fast)
    reader = SingleReader(fast.net, fast.pool, case.routing, texts[1])
    for symbol in case.ids[PROMPT:8]:
        slowly(slow, texts[0], symbol)
        reader.read(symbol)
    reader.give_back()
    rest = torch.tensor(case.ids[8:])
    wanted = read(slow.net, rest, slow.forward(text=texts[0]))
    got = read(fast.net, rest, fast.forward(text=texts[1]))
    np.testing.assert_allclose(got.logits, wanted.logits, rtol=0, atol=2e-4)


def test_weights_that_change_between_two_characters_are_seen() -> None:
    case = case_of(characters=8)
    slow, fast = make(case), make(case)
    texts = begun(slow), begun(fast)
    reader = SingleReader(fast.net, fast.pool, case.routing, texts[1])
    for symbol in case.ids[PROMPT:]:
        for tiny in (slow, fast):
            with torch.no_grad():
                for parameter in tiny.net.parameters():
                    parameter.mul_(1.02)
            for level in tiny.pool.slots.levels:
                level.up.mul_(1.02)
        np.testing.assert_allclose(
            reader.read(symbol)[0], slowly(slow, texts[0], symbol)[0], rtol=0, atol=2e-4
        )


def test_numbers_that_are_not_finite_end_in_logits_that_are_not() -> None:
    case = case_of(characters=5)
    tiny = make(case)
    reader = SingleReader(tiny.net, tiny.pool, case.routing, begun(tiny))
    with torch.no_grad():
        tiny.net.adapter.weight.fill_(torch.nan)
    logits, rows = reader.read(7)
    assert rows == case.shape.max_steps
    assert not np.isfinite(logits).any()


@pytest.mark.parametrize("helped", [False, True])
def test_extreme_numbers_warn_nobody(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch, helped: bool
) -> None:
    if helped:
        monkeypatch.setattr(single, "LARGE", 1)
        monkeypatch.setattr(single, "ThreadPoolExecutor", Eager)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    case = case_of(characters=5)
    tiny = make(case)
    reader = SingleReader(tiny.net, tiny.pool, case.routing, begun(tiny))
    with torch.no_grad():
        for parameter in tiny.net.parameters():
            parameter.mul_(1e4)
    reader.read(7)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("case", "served"),
    [
        (case_of(), True), (case_of(freeze=False), False), (case_of(n_recur=2, freeze=False), False),
        (case_of(temperature=0.5), False),
    ],
)  # fmt: skip
def test_other_networks_are_left_to_read(case: Case, served: bool) -> None:
    assert serves(make(case).net, case.routing) is served
