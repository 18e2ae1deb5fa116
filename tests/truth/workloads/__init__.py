"""Synthetic machines whose truth is known, and the logs they would have left.

A workload models what happens, millisecond by millisecond: workers that load batches, a bounded
queue, steps on a device, epochs, checkpoints. *Starved* is a fact of that model: the device is
idle, a training run asks for a batch, and the queue of its loader is empty. It is never derived
from utilisation. What a log shows of it is then drawn: the driver's windows and the logger's rows.
"""

from tests.truth.workloads.catalog import (
    DEVELOPMENT_SEEDS,
    EVALUATION_SEEDS,
    KINDS,
    TRAINING_SEEDS,
    UNTAGGED,
    workload,
)
from tests.truth.workloads.csv_log import as_csv, memory_used_mib
from tests.truth.workloads.seeing import seen_all
from tests.truth.workloads.truth import GpuTruth, Workload

__all__ = [
    "DEVELOPMENT_SEEDS",
    "EVALUATION_SEEDS",
    "KINDS",
    "TRAINING_SEEDS",
    "UNTAGGED",
    "GpuTruth",
    "Workload",
    "as_csv",
    "memory_used_mib",
    "seen_all",
    "workload",
]
