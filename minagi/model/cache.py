"""What a text carries from one forward to the next: keys and values, position, and its vote."""

from __future__ import annotations

import torch
from torch import Tensor

from minagi.model.shape import Shape


class Text:
    """One text being read through the cache. Position 0 is its first character.

    `vote` [E] is what its characters have asked for so far; `tally` [rows, E] the same in full
    probabilities, kept only where experts are drawn (select_temperature > 0). Keys and values are
    [layers, 2, capacity, H, hd] in the compute precision, of which `position` characters are filled. `before`
    are the last `reach` ids read: what n-grams and words look back on.
    """

    def __init__(
        self, shape: Shape, dtype: torch.dtype, device: torch.device, capacity: int = 64, reach: int = 0
    ) -> None:
        self.position = 0
        self._reach = reach
        self.before = torch.empty(0, dtype=torch.long, device=device)
        self.vote: Tensor | None = None
        self.tally: Tensor | None = None
        self._kv = torch.empty(
            shape.cache_layers, 2, capacity, shape.n_head, shape.head_size, dtype=dtype, device=device
        )

    def passed(self, ids: Tensor) -> None:
        """ids [T] were read: the text goes on behind them."""
        self.position += ids.shape[0]
        if self._reach:
            self.before = torch.cat((self.before, ids))[-self._reach :]

    def reserve(self, characters: int) -> None:
        """Make room for `characters` more."""
        self._grow(self.position + characters)

    def _grow(self, need: int) -> None:
        held = self._kv.shape[2]
        if need > held:
            size = list(self._kv.shape)
            size[2] = max(need, 2 * held)
            bigger = self._kv.new_empty(size)
            bigger[:, :, :held] = self._kv
            self._kv = bigger

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Put k, v [T, H, hd] behind what `layer` holds; returns all its keys and values [P+T, H, hd].

        What is kept is detached: a gradient reaches k and v as they are given here and nothing before them.
        """
        past, end = self.position, self.position + k.shape[0]
        self._kv[layer, 0, past:end] = k.detach()
        self._kv[layer, 1, past:end] = v.detach()
        if k.requires_grad:
            return torch.cat((self._kv[layer, 0, :past], k)), torch.cat((self._kv[layer, 1, :past], v))
        return self._kv[layer, 0, :end], self._kv[layer, 1, :end]

    def keys_and_values(self) -> tuple[Tensor, Tensor]:
        """What is held, [layers, H, position, hd] each, in fp32."""
        held = self._kv[:, :, : self.position].float()
        return held[:, 0].transpose(1, 2).contiguous(), held[:, 1].transpose(1, 2).contiguous()

    def put(self, keys: Tensor, values: Tensor, places: slice) -> None:
        """Take the keys and values of characters read elsewhere, [layers, H, places, hd] each."""
        self._grow(places.stop)
        self._kv[:, 0, places] = keys.transpose(1, 2)
        self._kv[:, 1, places] = values.transpose(1, 2)

    def append_from(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Put the same k, v behind `layer` and every deeper one (a halted character's carried keys)."""
        end = self.position + k.shape[0]
        self._kv[layer:, 0, self.position : end] = k.detach()
        self._kv[layer:, 1, self.position : end] = v.detach()
