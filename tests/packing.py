"""Whether this processor has the packed bf16 products that writing uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minagi.model import packed


def _possible() -> bool:
    try:
        packed.packed(torch.zeros(2, 2, dtype=torch.bfloat16))(np.zeros(2, np.float32))
    except (AttributeError, RuntimeError):
        return False
    return True


needs_packing = pytest.mark.skipif(not _possible(), reason="no packed bf16 products on this processor")
