"""runs/samples.txt: every so often, what the model writes now, after one prompt a subject.

Writing comes in slices, as held-out readings do, so that nobody waits for it. It changes no weight and
draws from no random stream of the training. The file is for people, and never a reason to end a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from minagi import protocol
from minagi.config import Settings
from minagi.protocol import Log, Message
from minagi.records import RecordFile, beside
from minagi.steering import harmless
from minagi.text import alphabet
from minagi.text.corpus import Corpus, Subject, TextGoneError, read_span
from minagi.training.engine import Engine
from minagi.training.start import Start
from minagi.training.writing import Writer
from minagi.units import LN2

FILE_MAX = 16 * 1024 * 1024  # bytes
KEPT = 2  # such files, beside the one that is written
PROMPT_CHARS = 96
SUBJECTS_MAX = 4  # a time; where there are more they take turns
GRAM = 8  # characters


@dataclass(frozen=True)
class Sample:
    """What was written after one prompt; `adapted` is None where only raw writing was asked for."""

    subject: str
    prompt: str
    raw: str
    raw_repeated: float  # share of repeated 8-grams, 0..1
    adapted: str | None = None
    adapted_repeated: float | None = None


def repeated(text: bytes) -> float:
    """The share of a text's 8-grams that it had written before: 0 never repeats, 1 does nothing else."""
    count = len(text) - GRAM + 1
    if count < 1:
        return 0.0
    return 1 - len({text[at : at + GRAM] for at in range(count)}) / count


def prompt_of(subject: Subject) -> bytes:
    """The beginning of a subject's held-out text, or of what is read of it; b"" where neither is there."""
    for span in (*subject.held_out[:1], *subject.train[:1]):
        try:
            data = read_span(span, 0, min(PROMPT_CHARS, span.chars))
        except TextGoneError:
            continue
        return data.decode("utf-8", "ignore").encode()  # without the character cut in two at its end
    return b""


class Sampling:
    """Writes samples when they are due; a dry run only tells them."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        start: Start,
        clock: Callable[[], float],
    ) -> None:
        self.engine, self._decoding, self._start, self._clock = engine, settings.decoding, start, clock
        self._every = settings.training.sample_every * 60
        path = None if start.dry_run else beside(settings.data.history, "samples.txt")
        self._file = None if path is None else RecordFile(path, FILE_MAX, KEPT)
        self._writing: Generator[None, None, list[Sample]] | None = None
        self._sampled_at = clock()
        self._turn = 0
        self._seconds = 0.0  # spent writing
        self._chars = 0  # written in them

    @property
    def open(self) -> bool:
        """Samples are being written."""
        return self._writing is not None

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self._every > 0 and self._clock() - self._sampled_at >= self._every

    def begin(self, corpus: Corpus, window: int) -> None:
        """Begin to write."""
        self._seconds, self._chars = 0.0, 0
        self._writing = self._samples(self._chosen(corpus), window)

    def give_up(self) -> None:
        """What was being written is of a model that is no more."""
        self._writing = None

    def go_on(self, seconds: float, figures: Callable[[], str]) -> Iterator[Message]:
        """Write for about `seconds`; once all is written, keep and tell it under the `figures` of now."""
        yield protocol.Phase(phase="sampling")
        assert self._writing is not None
        began = self._clock()
        try:
            while self._clock() - began < seconds:
                next(self._writing)
        except StopIteration as end:
            self._writing = None
            self._sampled_at = self._clock()  # training has the whole time until the next
            self._seconds += self._sampled_at - began
            yield from self._tell(end.value, figures())
        else:
            self._seconds += self._clock() - began

    def _chosen(self, corpus: Corpus) -> list[Subject]:
        subjects = corpus.subjects
        taken = min(SUBJECTS_MAX, len(subjects))
        chosen = [subjects[(self._turn + place) % len(subjects)] for place in range(taken)]
        self._turn += taken
        return chosen

    def _samples(self, subjects: list[Subject], window: int) -> Generator[None, None, list[Sample]]:
        samples = []
        for subject in subjects:
            prompt = prompt_of(subject)
            if not prompt:
                continue
            raw = yield from self._write(prompt, window, 0.0)
            sample = Sample(subject.name, _text(prompt), _text(raw), repeated(raw))
            if not self._start.sample_raw_only:
                adapted = yield from self._write(prompt, window, self._decoding.adapt_strength)
                sample = Sample(
                    sample.subject, sample.prompt, sample.raw, sample.raw_repeated,
                    _text(adapted), repeated(adapted),
                )  # fmt: skip
            samples.append(sample)
        return samples

    def _write(self, prompt: bytes, window: int, strength: float) -> Generator[None, None, bytes]:
        writer = Writer(self.engine, window, strength, self._decoding)
        written = []
        for character in writer.write(alphabet.encode(prompt).tolist(), self._start.sample_chars):
            written.append(character.id)
            self._chars += 1
            yield
        return alphabet.decode(written)

    def _tell(self, samples: list[Sample], figures: str) -> Iterator[Message]:
        speed = self._chars / self._seconds if self._seconds > 0 else None
        kept = ""
        if self._file is not None:
            try:
                self._file.append(page(samples, figures, speed).encode("utf-8", "replace"))
            except OSError as error:
                text = f"The samples could not be written to {self._file.path}: {error.strerror or error}."
                yield Log(at=time.time(), level="warning", topic="run", text=text)
            else:
                kept = str(self._file.path)
                yield Log(at=time.time(), topic="run", text=f"What it writes now is in {kept}.")
        yield protocol.Sampled(
            at=time.time(), path=kept, chars_per_second=speed, samples=[vars(sample) for sample in samples]
        )


def heading(
    model: str,
    pulse: protocol.Metrics,
    window: protocol.Window,
    clip: float,
    held_out: protocol.HeldOut | None,
    rate: protocol.Rate | None,
) -> str:
    """The figures of the moment, a line each."""
    share = "" if pulse.corpus_share is None else f" ({pulse.corpus_share:.1%} of the corpus)"
    gain = "not measured yet" if window.gain is None else f"{window.gain / LN2:+.4f} bits"
    lines = [
        f"time      {time.strftime('%Y-%m-%d %H:%M:%S')}",
        f"model     {harmless(model)}",
        f"read      step {pulse.step:,}, {pulse.chars:,} characters{share}",
        f"window    {pulse.context:,} characters; looking back gains {gain}, "
        f"{window.gain_min / LN2:.4f} needed",
        f"reads     {_shown(pulse.chars_per_second, ',.0f')} characters a second",
        f"gradient  norm {_shown(pulse.grad_norm, '.3f')}, clipped at {clip:g}",
        f"train     {_bits(pulse.loss_smooth, '.4f')} bits a character",
    ]
    if held_out is None or held_out.nats is None:
        lines.append("held-out  not measured yet")
    else:
        perplexity = _shown(math.exp(min(held_out.nats, 700.0)), ",.2f")
        lines.append(
            f"held-out  {_measured(held_out.nats, held_out.stderr)}, perplexity {perplexity}, "
            f"gap to train {_bits(held_out.gap, '+.4f')} bits, at step {held_out.step:,}"
        )
        for name, score in held_out.subjects.items():
            lines.append(f"          {_measured(score.get('nats'), score.get('stderr'))}  {harmless(name)}")
    evidence = f"{_shown(rate.verdict, '+.2f')}. {rate.sentence}" if rate is not None else "none yet"
    lines.append(f"rate      factor {pulse.rate_factor:.3f}, evidence {evidence}")
    return "\n".join(lines)


def _measured(nats: float | None, stderr: float | None) -> str:
    if nats is None:
        return "not measured"
    return f"{_bits(nats, '.4f')} ± {_bits(stderr, '.4f')} bits a character"


def _bits(nats: float | None, form: str) -> str:
    return _shown(None if nats is None else nats / LN2, form)


def _shown(value: float | None, form: str) -> str:
    return "unknown" if value is None or not math.isfinite(value) else format(value, form)


def page(samples: list[Sample], figures: str, speed: float | None) -> str:
    """One entry of the file: a line of equals signs, figures, and each subject's prompt and texts."""
    lines = ["=" * 78, figures.rstrip("\n")]
    if speed is not None:
        lines.append(f"writes    {speed:,.1f} characters a second")
    for sample in samples:
        lines += ["", f"--- {harmless(sample.subject)}", f"[prompt] {harmless(sample.prompt)}"]
        lines.append(f"[raw, {sample.raw_repeated:.0%} of 8-grams repeated] {harmless(sample.raw)}")
        if sample.adapted is not None and sample.adapted_repeated is not None:
            share = f"{sample.adapted_repeated:.0%} of 8-grams repeated"
            lines.append(f"[adapted, {share}] {harmless(sample.adapted)}")
    return "\n".join(lines) + "\n\n"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
