"""For every test: one thread, so that numbers repeat to the bit and tests do not fight over cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Read by torch when it is loaded. Set and not imported here: most tests never load torch at all.
os.environ["OMP_NUM_THREADS"] = "1"

# A busy machine is no fault of the code; a quarter of the usual examples keeps the suite to minutes.
settings.register_profile("untimed", deadline=None, max_examples=25)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A test that asks for threads leaves none to the next ones: on a busy machine two of torch's,
    waiting for each other at every product, take a hundred times one's time."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those in a real terminal come first: few a file and long, they would be left over at the end."""
    items.sort(key=lambda item: "terminal" not in item.path.parts)
