"""minagi: a byte-level language model that never stops learning, and everything that keeps it alive.

Importing this package is cheap: torch is loaded only by the modules that compute.
"""

__version__ = "0.1.0"
