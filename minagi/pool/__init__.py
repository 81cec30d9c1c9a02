"""The expert pool: three tiers, admission to the card, birth and death."""

from minagi.pool.pool import ExpertPool
from minagi.pool.ram import RamTier
from minagi.pool.slots import ExpertSlots
from minagi.pool.telemetry import Telemetry

__all__ = ["ExpertPool", "ExpertSlots", "RamTier", "Telemetry"]
