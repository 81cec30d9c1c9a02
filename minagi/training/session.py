"""Opening a session: everything a run needs, put together in the order in which it can fail in words."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from minagi.config import LoadedSettings, Settings, profiles, with_profile
from minagi.errors import UsageError, WeightsError
from minagi.hardware import Hardware, choose_device, detect
from minagi.model.reading import read
from minagi.model.routing import Forward
from minagi.text import alphabet
from minagi.text.collect import collect, collect_to_measure
from minagi.text.corpus import read_span
from minagi.text.lanes import LaneReader
from minagi.text.watch import CorpusWatcher
from minagi.training.chat_records import ChatRecords
from minagi.training.elsewhere import NOTHING, elsewhere
from minagi.training.engine import Engine, depth_warnings
from minagi.training.evaluate import Score
from minagi.training.ours import ours_of
from minagi.training.request import Looked, SessionRequest, Written
from minagi.training.start import Start
from minagi.training.trainer import Trainer
from minagi.training.writing import REPLY_ENDS, Writer
from minagi.units import LN2
from minagi.weights import Store
from minagi.weights.layout import Places

NO_CARD = "cpu"  # the profile of a newborn model on a machine without a GPU


class Session(Trainer):
    """A trainer with the scratch folder of its dry run, which goes when it is closed."""

    scratch: Path | None = None

    def close(self) -> None:
        super().close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def open_session(request: SessionRequest) -> Session:
    """Text, weights, machine, model, trainer. Raises MinagiError in words; nothing is left locked then."""
    choose_device(request.device)  # before a directory is made for a model that cannot be computed
    scratch = Path(tempfile.mkdtemp(prefix="minagi-dry-")) if request.dry_run else None
    store = None
    try:
        store = Store.open(request.weights, write=not request.dry_run, scratch=scratch)
        session = _assemble(request, store, ChatRecords(Places(store.path).chat, scratch))
        session.scratch = scratch
        return session
    except BaseException:
        if store is not None:
            store.close()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise


def _assemble(request: SessionRequest, store: Store, records: ChatRecords) -> Session:
    fresh = not store.exists
    ours = ours_of(store.manifest)
    loaded, profile, why = settled(request.loaded, store, ours, fresh, request.device)
    settings = loaded.settings
    held_out = settings.data.held_out if settings.data.held_out.is_dir() else None
    exclude = not_text(request.paths, request.weights, settings)
    choice = ours.get("held_out")
    choice = choice if isinstance(choice, dict) else None
    corpus = collect(
        request.paths, held_out, choice, exclude, request.follow_symlinks, transcript=records.transcript
    )
    watcher = CorpusWatcher(
        request.paths, corpus, held_out, exclude, request.follow_symlinks, records.transcript
    )
    seed = settings.data.shuffle_seed if request.seed is None else request.seed
    engine, notices = open_engine(store, settings, request.device, seed)
    start = Start(
        seed=seed,
        **request.manner(),
        fresh=fresh,
        profile=profile,
        notice="\n".join(filter(None, (why, loaded.notice, *notices))),
        elsewhere=NOTHING if held_out else elsewhere(ours, corpus, exclude, request.follow_symlinks),
    )
    reader = LaneReader(corpus, settings.data.passage, seed)
    return Session(engine, loaded, corpus, reader, watcher, start, records)


def not_text(paths: Sequence[Path], weights: Path, settings: Settings) -> tuple[Path, ...]:
    """Folders that may lie below what is read and are not to be: the weights, and the records of runs.

    A records folder that was itself given to read, or holds what was, stays.
    """
    records = settings.data.history.parent.resolve()
    given = any(path.resolve().is_relative_to(records) for path in paths)
    return (weights,) if given else (weights, records)


def open_engine(store: Store, settings: Settings, device: str, seed: int) -> tuple[Engine, list[str]]:
    """The model of the directory, or a newborn, to be trained; and sentences on what was decided for it."""
    hardware = detect(device, settings.training.precision, settings)
    if hardware.precision == "fp16":
        raise UsageError(
            "fp16 loses small gradients: train with --precision bf16 or fp32, and write with fp16."
        )
    _prepare_torch(hardware)
    if not store.exists:
        return Engine.fresh(store, settings, hardware, seed), [hardware.notice]
    engine = Engine.opened(store, settings, hardware)
    return engine, [hardware.notice, *depth_warnings(settings, engine.shape)]


def settled(
    loaded: LoadedSettings, store: Store, ours: dict[str, Any], fresh: bool, device: str
) -> tuple[LoadedSettings, str, str]:
    """The settings in effect, their profile, and the sentence that says what was decided.

    A newborn on a machine without a GPU gets the profile made for that; a model goes on with the
    profile it was born with. What the user named, by flag or file, is left alone.
    """
    if loaded.explicit:
        return loaded, loaded.profile, ""
    if not fresh:
        born_with = ours.get("profile")
        if isinstance(born_with, str) and born_with in profiles():
            return with_profile(loaded, born_with), born_with, ""
        return loaded, "", ""
    if choose_device(device) == "cpu":
        return (
            with_profile(loaded, NO_CARD),
            NO_CARD,
            "There is no GPU here, so this new model has the small shape of the profile 'cpu'.",
        )
    return loaded, "", ""


def _prepare_torch(hardware: Hardware) -> None:
    torch.set_num_threads(hardware.threads)
    if hardware.device == "cpu" and hardware.precision == "fp32":
        _choose_fp32_library()


def _choose_fp32_library() -> None:
    """Where "medium" moves fp32 products to a faster library, use it; not where it rounds them to bf16."""
    a, b = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(0))
    exact = a.double() @ b.double()
    torch.set_float32_matmul_precision("medium")
    if float((a @ b - exact).norm() / exact.norm()) > 1e-5:
        torch.set_float32_matmul_precision("highest")


# ----------------------------------------------------------------------------------- reading out


class Reader:
    """A model that is read out: it writes and measures, and changes no byte of its directory.

    `window` is how many characters it looks back on; `scratch`, a folder, goes when it is closed.
    """

    scratch: Path | None = None

    def __init__(self, engine: Engine, settings: Settings, window: int) -> None:
        self.engine, self.settings, self.window = engine, settings, window

    def write(
        self,
        prompt: bytes,
        chars: int,
        raw: bool = False,
        strength: float | None = None,
        on_char: Callable[[bytes, int], None] | None = None,
    ) -> Written:
        """Write at most `chars` characters after `prompt`; `on_char` gets each one's bytes and rows."""
        if not prompt:
            raise UsageError("There is no prompt to write on from: give it at least one character.")
        decoding = self.settings.decoding
        strength = decoding.adapt_strength if strength is None else strength
        writer = Writer(self.engine, self.window, 0.0 if raw else strength, decoding)
        ids: list[int] = []
        rows: list[int] = []
        for character in writer.write(alphabet.encode(prompt).tolist(), chars, REPLY_ENDS):
            ids.append(character.id)
            rows.append(character.rows)
            if on_char is not None:
                on_char(alphabet.decode([character.id]), character.rows)
        return Written(alphabet.decode(ids), ids, rows)

    def evaluate(self, path: Path) -> dict[str, Any]:
        """Score every byte after a text's first once, each with half a window before it, or all there is."""
        corpus = collect_to_measure([path])
        total = Score()
        subjects = {}
        for subject in corpus.subjects:
            score = Score()
            for span in subject.held_out:
                for nats, size in self.engine.evaluator.every_byte(
                    alphabet.encode(read_span(span)), self.window
                ):
                    score.add(nats, size)
                    total.add(nats, size)
            subjects[subject.name] = _figures(score)
        return {**_figures(total), "subjects": subjects, "context": self.window}

    def look(self, text: bytes) -> Looked:
        """Read a short text (at least one byte) as a new one: rows and expectation of each symbol."""
        net = self.engine.net
        ids = torch.from_numpy(alphabet.encode(text).astype("int64")).to(net.tok_emb.weight.device)
        generator = torch.Generator().manual_seed(0)  # select_temperature draws alike every time
        forward = Forward(self.engine.pool, net.new_text(1), self.engine.routing, generator=generator)
        reading = read(net, ids, forward, cached=False)
        return Looked(reading.rows.tolist(), reading.logits.argmax(-1).tolist())

    def close(self) -> None:
        """Give back files and memory."""
        self.engine.store.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def open_reader(weights: Path, loaded: LoadedSettings, device: str = "auto", precision: str = "") -> Reader:
    """Open a weights directory for writing and measuring, beside a live trainer if there is one."""
    scratch = Path(tempfile.mkdtemp(prefix="minagi-read-"))
    store = None
    try:
        store = Store.open(weights, write=False, scratch=scratch)
        if not store.exists:
            raise WeightsError(
                f"{weights} holds no model yet. Make one with: minagi read FOLDER --weights {weights} --save"
            )
        loaded, _, _ = settled(loaded, store, ours_of(store.manifest), False, device)
        hardware = detect(device, precision or loaded.settings.training.precision, loaded.settings)
        _prepare_torch(hardware)
        window = store.manifest.get("context_now")
        window = window if isinstance(window, int) and window > 1 else loaded.settings.model.context_start
        reader = Reader(Engine.opened(store, loaded.settings, hardware), loaded.settings, window)
        reader.scratch = scratch
        return reader
    except BaseException:
        if store is not None:
            store.close()
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _figures(score: Score) -> dict[str, Any]:
    nats = score.nats
    return {
        "nats": nats,
        "bits_per_byte": None if nats is None else nats / LN2,
        "bytes": score.size,
        "stderr": score.stderr,
    }
