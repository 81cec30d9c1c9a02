"""Moved to minagi.protocol, which imports nothing heavy; this name goes away."""

from minagi.protocol import *  # noqa: F403
from minagi.protocol import M, _finite, _typed  # noqa: F401
