"""minagi: a byte-level language model that never stops learning, and everything that keeps it alive.

Importing this package is cheap: torch is loaded only by the modules that compute. `minagi.open` opens a model
in a program or a notebook (docs/api.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minagi.api import open_model as open

__all__ = ["__version__", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "open":  # loaded when it is asked for
        from minagi.api import open_model

        return open_model
    raise AttributeError(f"module 'minagi' has no attribute {name!r}")
