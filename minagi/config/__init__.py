"""Settings: typed, documented, checked, and always able to say where a value came from."""

from minagi.config.loading import LoadedSettings, load_settings, profiles, with_profile, with_values
from minagi.config.settings import (
    KEYS,
    Data,
    Decoding,
    Growth,
    Hardware,
    Key,
    Model,
    Plots,
    Pool,
    Prune,
    Settings,
    Training,
    Ui,
)

__all__ = [
    "KEYS", "Data", "Decoding", "Growth", "Hardware", "Key", "LoadedSettings", "Model", "Plots", "Pool",
    "Prune", "Settings", "Training", "Ui", "load_settings", "profiles", "with_profile",
    "with_values",
]  # fmt: skip
