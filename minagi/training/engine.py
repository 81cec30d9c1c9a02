"""The model with its pool and optimiser, and its way into and out of the weights directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from minagi.config import Settings
from minagi.hardware import Hardware, free_memory
from minagi.model.network import Network, initialise, output_std
from minagi.model.shape import Depth, Routing, Shape
from minagi.pool import ExpertPool, ExpertSlots, Telemetry
from minagi.pool.copies import Copies, ways
from minagi.pool.slots import level_names
from minagi.training.average import Averages
from minagi.training.evaluate import Evaluator
from minagi.training.optimiser import EXPERT_STEPS, Optimiser
from minagi.training.population import Population
from minagi.weights import CheckpointState, ExpertRecord, Store, layout

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
AVERAGED = "averaged"  # the manifest's word on whether the weights have averages beside them
SPARE = 1 << 29  # bytes of memory that experts which disk refuses leave to others
POOL_AUX = 0.01  # weight of the router's load term in the loss


class Engine:
    """Everything that computes. Made by `fresh` or `opened`; `reload` goes back to the directory's model."""

    def __init__(
        self,
        store: Store,
        shape: Shape,
        depth: Depth,
        telemetry: Telemetry,
        settings: Settings,
        hardware: Hardware,
        averaged: bool,
    ) -> None:
        self.store, self.shape, self.hardware = store, shape, hardware
        pool, training = settings.pool, settings.training
        dtype = DTYPES[hardware.precision]
        device = torch.device(hardware.device)
        self.routing = Routing(pool.resident, pool.capacity_factor, pool.balance, pool.select_temperature)
        self.net = Network(shape, depth, len(telemetry), dtype).to(device)
        if self.net.ngram is not None:
            self.net.ngram.drop = training.ngram_drop
        self._renews = training.ngram_renew  # else nobody would ever read with young rows
        slots = ExpertSlots(
            pool.resident, shape.d_model, shape.expert_width, shape.expert_depth, dtype, device, averaged
        )
        self.pool = ExpertPool(slots, store, telemetry, pool.ram_cache)
        self.pool.ram.roomy = lambda: free_memory() > SPARE
        self.optimiser = Optimiser(
            self.net,
            self.pool,
            training.beta2,
            training.weight_decay,
            training.clip,
            training.ngram_lr / training.lr,
        )
        self.averages = Averages(self.net, self.pool, training.average_chars) if averaged else None
        self.population = Population(self.net, self.pool, self.optimiser, self.averages)
        self.evaluator = Evaluator(self.net, self.pool, self.routing)
        self.block = settings.model.context_end  # positions the manifest states

    # ---------------------------------------------------------------------------- made or opened

    @classmethod
    def fresh(cls, store: Store, settings: Settings, hardware: Hardware, seed: int) -> Engine:
        """A newborn model of the settings' shape. Nothing is written yet."""
        model, pool = settings.model, settings.pool
        shape = Shape(
            model.d_model, model.n_head, model.d_ff, model.n_prelude, model.n_recur, model.n_coda,
            model.max_steps, pool.width, pool.depth, pool.top_k,
            **_ngrams(model.ngram, model.ngram_rows, model.word_rows),
        )  # fmt: skip
        engine = cls(
            store, shape, depth_of(settings, shape), Telemetry(pool.experts), settings, hardware,
            settings.training.average_chars > 0,
        )  # fmt: skip
        initialise(engine.net, torch.Generator(hardware.device).manual_seed(seed))
        if engine.averages is not None:
            engine.averages.load(None)
        blocks = shape.n_prelude + shape.n_recur + shape.n_coda
        for uid in range(pool.experts):
            engine.pool.ram.put(_newborn(uid, shape, blocks, seed), dirty=True)
        return engine

    @classmethod
    def opened(cls, store: Store, settings: Settings, hardware: Hardware) -> Engine:
        """The model that the weights directory holds."""
        shape = shape_of(store.shape)
        averaged = store.manifest.get(AVERAGED) is True
        depth = depth_of(settings, shape)
        engine = cls(store, shape, depth, _telemetry(store), settings, hardware, averaged)
        engine.block = max(engine.block, int(store.shape.get("block", 0)))
        engine._load()
        return engine

    def reload(self) -> None:
        """Become what the directory holds now, whatever was learned since."""
        self.pool.drop_all()
        self.pool.telemetry = _telemetry(self.store)
        self.population.resize(len(self.pool.telemetry))
        self._load()

    def _load(self) -> None:
        if self.averages is not None:
            self.averages.newest()
        arrays = {**self.store.read_core(), **self.store.read_routers()}
        if self.net.ngram is not None:
            self.net.ngram.have_young(layout.NGRAM_YOUNG in arrays)
        with torch.no_grad():
            for name, tensor in self.net.stored().items():
                tensor.copy_(torch.from_numpy(arrays[name]))
        if self.net.ngram is not None and not self._renews:
            self.net.ngram.have_young(False)
        self.net.precision.forget()
        self.optimiser.zero_grad()
        self.optimiser.load(
            {name: (_tensor(m), _tensor(v), t) for name, (m, v, t) in self.store.read_optim().items()}
        )
        if self.averages is not None:
            means = self.store.read_average()
            self.averages.load(None if means is None else {n: torch.from_numpy(a) for n, a in means.items()})

    def stepped(self, chars: int, total: int, weight: float = 1.0) -> None:
        """A step was made on `chars` new characters, at `weight` of the usual rate; `total` were read since
        birth."""
        if self.averages is not None:
            self.averages.stepped(chars, total, weight)

    # -------------------------------------------------------------------------------- checkpoint

    def state(self, manifest: Mapping[str, Any], copies: Copies | None = None) -> CheckpointState:
        """Everything a checkpoint holds; `manifest` are the trainer's keys.

        What the next step changes is copied into `copies`; without, the state is good until then only.
        """
        weights, moments = ways(copies)
        means = {}
        if self.averages is not None:
            self.averages.newest()
            means = {name: moments(self.averages.of(name)) for name, _ in self.net.dense_parameters()}
        core = {name: weights(tensor) for name, tensor in self.net.stored().items()}
        routers = {name: core.pop(name) for name in list(core) if _is_router(name)}
        core["head.weight"] = core["tok_emb.weight"]
        optim: dict[str, tuple[np.ndarray | None, np.ndarray | None, float]] = {
            name: (moments(s.m), moments(s.v), float(s.step)) for name, s in self.optimiser.state.items()
        }
        optim |= {name: (None, None, float(self.optimiser.expert_steps)) for name in EXPERT_STEPS}
        telemetry = self.pool.telemetry
        return CheckpointState(
            manifest={
                **manifest,
                AVERAGED: self.averages is not None,
                "cfg": {**self.store.manifest.get("cfg", {}), **self._cfg()},
                "telemetry": telemetry.to_manifest(routers["pool.gate"].tolist()),
            },
            core=core,
            routers=routers,
            optim=optim,
            experts=self.pool.changed(copies),
            uids=list(telemetry.uid),
            average=means,
        )

    def settle(self) -> None:
        """A checkpoint holds everything now: live moments become what its files say."""
        self.pool.settle()
        self.optimiser.round_moments()
        if self.averages is not None:
            self.averages.round()

    def _cfg(self) -> dict[str, Any]:
        shape, depth, experts = self.shape, self.net.depth, self.pool.experts
        return {
            "vocab_size": shape.vocab_size, "n_layer": shape.cache_layers, "n_head": shape.n_head,
            "d_model": shape.d_model, "block": self.block, "d_ff": shape.d_ff,
            "rope_theta": shape.rope_theta, "tie_embeddings": True, "use_pool": True,
            "pool_experts": experts, "pool_d_ff": shape.expert_width, "pool_depth": shape.expert_depth,
            "pool_top_k": shape.top_k, "pool_capacity_factor": self.routing.capacity_factor,
            "pool_max": max(experts, int(self.store.manifest.get("cfg", {}).get("pool_max", 0))),
            "pool_aux": POOL_AUX, "n_prelude": shape.n_prelude, "n_recur": shape.n_recur,
            "n_coda": shape.n_coda, "max_steps": shape.max_steps, "min_steps": depth.min_steps,
            "train_steps_mean": depth.train_steps_mean, "bptt_window": depth.bptt_window,
            "ponder_beta": depth.ponder_beta, "halt_prior": depth.halt_prior,
            "halt_thresh": depth.halt_thresh, "halt_freeze": depth.halt_freeze,
            "pool_resident": self.routing.resident,
            **self._ngram_cfg(),
        }  # fmt: skip

    def _ngram_cfg(self) -> dict[str, Any]:
        table = self.net.ngram
        if table is None:
            return {}
        return {
            "ngram": table.longest, "ngram_rows": table.rows, "word_rows": table.word_rows,
            "ngram_young": table.young is not None,
        }  # fmt: skip

    @property
    def parameters(self) -> int:
        """Numbers that are learnt: trunk and all experts, on the card or not."""
        trunk = sum(p.numel() for p in self.net.parameters())
        return trunk + self.pool.experts * self.shape.expert_parameters

    @property
    def copied_bytes(self) -> int:
        """What `state` copies at most, of trunk and card."""
        trunk = sum(p.numel() for _, p in self.net.dense_parameters())
        stepped = trunk + len(self.pool.resident()) * self.shape.expert_parameters
        return stepped * self._bytes_each + self._ngram_bytes

    @property
    def model_bytes(self) -> int:
        """What the model's own files take, snapshots of earlier states aside."""
        dense = sum(p.numel() for _, p in self.net.dense_parameters())
        stepped = dense + self.pool.experts * self.shape.expert_parameters
        return stepped * self._bytes_each + self._ngram_bytes

    @property
    def expert_bytes(self) -> int:
        """What one more expert takes on disk."""
        return self.shape.expert_parameters * self._bytes_each

    @property
    def _ngram_bytes(self) -> int:
        """What the n-gram tables take, in memory and in a checkpoint."""
        table = self.net.ngram
        return 0 if table is None else 4 * sum(t.numel() for t in (table.weight, *table.buffers()))

    @property
    def _bytes_each(self) -> int:
        """Of a number in a checkpoint: fp32 itself, its moments in bf16, and its average if there is one."""
        return 8 if self.averages is None else 10


def shape_of(cfg: Mapping[str, Any]) -> Shape:
    """The shape a manifest's `cfg` states."""
    return Shape(
        cfg["d_model"], cfg["n_head"], cfg["d_ff"], cfg["n_prelude"], cfg["n_recur"], cfg["n_coda"],
        cfg["max_steps"], cfg["pool_d_ff"], cfg["pool_depth"], cfg["pool_top_k"],
        float(cfg["rope_theta"]),
        **_ngrams(cfg.get("ngram", 0), cfg.get("ngram_rows", 0), cfg.get("word_rows", 0)),
    )  # fmt: skip


def _ngrams(longest: int, rows: int, word_rows: int) -> dict[str, int]:
    """The shape's n-gram tables; there are none for single characters, and none for words alone."""
    return {"ngram": longest, "ngram_rows": rows, "word_rows": word_rows} if longest > 1 and rows else {}


def depth_of(settings: Settings, shape: Shape) -> Depth:
    """The settings' depth as far as it fits the shape (see `depth_warnings`)."""
    model = settings.model
    return Depth(
        min_steps=min(model.min_steps, shape.max_steps),
        halt_prior=model.halt_prior,
        halt_thresh=model.halt_thresh,
        halt_freeze=model.halt_freeze and shape.n_recur == 1 and shape.n_coda == 0,
        ponder_beta=model.ponder_beta,
        bptt_window=min(model.bptt_window, shape.max_steps),
        train_steps_mean=model.train_steps_mean if model.train_steps_mean < shape.max_steps else 0.0,
    )


def depth_warnings(settings: Settings, shape: Shape) -> list[str]:
    """Sentences on depth settings that do not fit the shape of the model opened."""
    model, rows = settings.model, shape.max_steps
    said = []
    if model.bptt_window > rows:
        said.append(
            f"model.bptt_window {model.bptt_window} is more than the model's {rows} rows: {rows} is used."
        )
    if model.min_steps > rows:
        said.append(
            f"model.min_steps {model.min_steps} is more than the model's {rows} rows: {rows} is used."
        )
    if model.train_steps_mean >= rows:
        said.append(
            f"model.train_steps_mean {model.train_steps_mean:g} does not fit the model's {rows} rows: "
            "every row runs in training."
        )
    if 1 / model.halt_prior > 1.5 * rows:
        said.append(
            f"model.halt_prior {model.halt_prior:g} expects {1 / model.halt_prior:.0f} rows a character and "
            f"the model has {rows}: it will be pulled to its full depth."
        )
    if model.halt_freeze and (shape.n_recur > 1 or shape.n_coda):
        said.append("model.halt_freeze needs one recurrent block and no coda: every row runs whole.")
    return said


def _is_router(name: str) -> bool:
    return name == "pool.gate" or ".router." in name or name.endswith("depth_emb")


def _telemetry(store: Store) -> Telemetry:
    return Telemetry.from_manifest(store.manifest.get("telemetry") or {}, store.uids)


def _tensor(array: np.ndarray | None) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)


def _newborn(uid: int, shape: Shape, blocks: int, seed: int) -> ExpertRecord:
    """A founder's weights: w1 and w3 N(0, 0.02), w2 scaled down like every output."""
    rng = np.random.default_rng((seed, uid))
    weights = {}
    for level in range(shape.expert_depth):
        w1, w3, w2 = level_names(level)
        for name, size, std in (
            (w1, (shape.expert_width, shape.d_model), 0.02),
            (w3, (shape.expert_width, shape.d_model), 0.02),
            (w2, (shape.d_model, shape.expert_width), output_std(blocks)),
        ):
            weights[name] = rng.standard_normal(size, dtype=np.float32) * np.float32(std)
    return ExpertRecord(uid, weights, None)
