"""What slows a run's input, through which loaders, and which reason is right."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

CORES: Final = 2
"""Of each training run, so that too few are the same number on every machine."""
EVERY_S: Final = 0.06
"""Seconds between batches if no worker is held up; a step takes a quarter of that."""


class Loader(NamedTuple):
    """How batches come.

    Attributes:
        kind: A key of ``loaders.BATCHES``, or ``PyDataset``.
        workers: Threads or processes that make batches; 0: the training thread makes them.
        framework: Needs ``.venv-<framework>``; empty: none.
    """

    kind: str
    workers: int
    framework: str = ""

    @property
    def batch_s(self) -> float:
        """How long a worker takes for a batch."""
        return EVERY_S * max(1, self.workers)


LOADERS: Final[Mapping[str, Loader]] = MappingProxyType(
    {
        "generator": Loader("generator", 0),
        "1 thread": Loader("threads", 1),
        "3 threads": Loader("threads", 3),
        "1 process": Loader("processes", 1),
        "2 processes": Loader("processes", 2),
        "4 processes": Loader("processes", 4),
        "tf.data, map in Python": Loader("tf.data", 3, "tensorflow"),
        "PyDataset, 3 workers": Loader("PyDataset", 3, "tensorflow"),
        "DataLoader, no workers": Loader("DataLoader", 0, "torch"),
        "DataLoader, 1 worker": Loader("DataLoader", 1, "torch"),
        "DataLoader, 2 workers": Loader("DataLoader", 2, "torch"),
        "DataLoader, 4 workers": Loader("DataLoader", 4, "torch"),
        "JAX, generator": Loader("generator", 0, "jax"),
    }
)


class Condition(NamedTuple):
    """What slows a run's input.

    Attributes:
        work: What a batch costs, a key of ``work.WORKS``.
        loaders: Keys of ``LOADERS``.
        right: The true reasons; empty: nothing slows it.
        why: Why those.
        burners: Threads of the run that compute in Python.
        quick: The loader of the test in CI; empty: none.
    """

    work: str
    loaders: tuple[str, ...]
    right: tuple[str, ...]
    why: str
    burners: int = 0
    quick: str = ""


CONDITIONS: Final[Mapping[str, Condition]] = MappingProxyType(
    {
        "healthy": Condition(
            "none",
            ("1 process", "tf.data, map in Python", "DataLoader, 1 worker", "JAX, generator"),
            right=(),
            why="batches are ready: nothing is waited for",
        ),
        "cpu, more workers than cores": Condition(
            "compute",
            ("4 processes", "DataLoader, 4 workers"),
            right=("cpu_bound",),
            why="4 workers want 4 cores and have 2",
        ),
        "cpu, one worker": Condition(
            "compute",
            ("1 process", "DataLoader, 1 worker"),
            right=("cpu_bound",),
            why="the worker has a core and uses all of it",
        ),
        "cpu, in the training thread": Condition(
            "compute",
            ("generator", "DataLoader, no workers", "JAX, generator"),
            right=("cpu_bound",),
            why="the training thread computes its batches itself",
        ),
        "cpu, threads that need no GIL": Condition(
            "compute without the GIL",
            ("3 threads", "tf.data, map in Python"),
            right=("cpu_bound",),
            why="3 threads compute at once, outside the interpreter, and have 2 cores",
        ),
        "GIL, threads that make batches": Condition(
            "compute",
            ("3 threads", "tf.data, map in Python", "PyDataset, 3 workers"),
            right=("gil_bound",),
            why="of 3 threads that compute in Python one makes progress",
            quick="3 threads",
        ),
        "GIL, batches ready": Condition(
            "none",
            ("1 process",),
            right=("gil_bound",),
            why="2 threads compute in Python while the training thread wants to launch work",
            burners=2,
        ),
        "memory bandwidth": Condition(
            "copy",
            ("2 processes", "DataLoader, 2 workers"),
            right=("cpu_bound",),
            why="a core that waits for memory is a core in use",
        ),
        "disk, O_DIRECT in sequence": Condition(
            "read directly",
            ("1 process", "1 thread", "generator", "DataLoader, 1 worker"),
            right=("disk_bound",),
            why="every byte comes from the device",
            quick="1 process",
        ),
        "disk, O_DIRECT at random": Condition(
            "read directly at random",
            ("1 process",),
            right=("disk_bound",),
            why="every block of 4 KiB comes from the device",
        ),
        "disk, mmap at random": Condition(
            "map",
            ("1 process", "generator"),
            right=("disk_bound",),
            why="every page is a major fault",
        ),
        "disk, buffered": Condition(
            "read",
            ("1 process", "tf.data, map in Python", "DataLoader, 1 worker"),
            right=("disk_bound", "cpu_bound"),
            why="all comes from the device, and copying it costs a core: both are true",
        ),
        "network": Condition(
            "receive",
            ("1 process", "1 thread", "generator", "DataLoader, 1 worker"),
            right=("network_bound",),
            why="a server sends 2.7 MB/s",
        ),
        "slow pipe": Condition(
            "read a pipe",
            ("1 process",),
            right=("unknown", "latency_bound"),
            why="the program at the other end sleeps, which is not visible here",
        ),
        "latency": Condition(
            "sleep",
            (
                "1 process",
                "1 thread",
                "generator",
                "tf.data, map in Python",
                "PyDataset, 3 workers",
                "DataLoader, 1 worker",
                "JAX, generator",
            ),
            right=("latency_bound",),
            why="each batch sleeps",
        ),
        "memory pressure": Condition(
            "map again and again",
            ("1 process",),
            right=("memory_pressure", "disk_bound"),
            why="a limit keeps a quarter of the data; the rest is read again: both are true",
        ),
    }
)
