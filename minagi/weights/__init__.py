"""The weights directory: its public layout, atomic commits, snapshots and the lock. numpy only."""

from minagi.weights.snapshots import SnapshotInfo
from minagi.weights.store import Store
from minagi.weights.tensors import ExpertRecord, as_written
from minagi.weights.writing import CheckpointState

__all__ = ["CheckpointState", "ExpertRecord", "SnapshotInfo", "Store", "as_written"]
