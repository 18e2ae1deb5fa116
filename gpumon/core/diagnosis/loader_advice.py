"""What a run reports about its loaders: their names in its code, and settings worth changing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from gpumon.core.diagnosis import messages
from gpumon.core.report.report import RunReport
from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.facts import VALIDATION_FACTS
from gpumon.core.wording import label_text, listed

_WORKERS_ARGUMENT: Final[Mapping[str, str]] = {
    "DataLoader": "num_workers",
    "PyDataset": "workers",
    "grain": "worker_count",
    "tf.data": "num_parallel_calls",
}
"""What each kind of loader calls the number of its workers."""
_IN_PROCESSES: Final[Mapping[str, str]] = {
    "DataLoader": "set num_workers={}",
    "PyDataset": "set workers={}, use_multiprocessing=True",
    "grain": "set worker_count={}",
}
Setting: TypeAlias = tuple[messages.Counted, tuple[tuple[str, object], ...]]
"""A sentence on a loader's setting, and its fields except ``runs``."""


def loader_named(run: RunReport | None) -> str:
    """The loader as its user would recognise it: ``Slow(workers=1) (train.py:42)``.

    >>> loader_named(None)
    'the loader'
    """
    return "the loader" if run is None else _named(run.loader, f"the loader of {run.run}")


def validation_loader_named(run: RunReport) -> str:
    """The same of the loader of its validation; empty where nothing is known of it."""
    facts: LoaderFacts = {
        name.removeprefix(VALIDATION_FACTS): fact
        for name, fact in run.loader.items()
        if name.startswith(VALIDATION_FACTS)
    }
    return _named(facts, f"the validation loader of {run.run}") if facts else ""


def _named(facts: LoaderFacts, without_name: str) -> str:
    kind, own, workers = facts.get("kind"), facts.get("class"), facts.get("workers")
    argument = _WORKERS_ARGUMENT.get(str(kind))
    setting = f"{argument}={workers}" if argument and isinstance(workers, int) else ""
    if not isinstance(own, str):
        named = without_name + (f" ({setting})" if setting else "")
    elif kind == "DataLoader":
        named = f"DataLoader({', '.join(filter(None, (own, setting)))})"
    else:
        named = f"{own}({setting})"
    made_at = facts.get("made_at") or facts.get("defined_at")
    return label_text(f"{named} ({made_at})" if isinstance(made_at, str) else named, 200)


def in_processes(run: RunReport | None, count: int) -> str:
    """How to make that loader work in so many processes."""
    kind = "" if run is None else str(run.loader.get("kind"))
    if kind == "tf.data":
        return messages.IN_TF_DATA
    if kind in _IN_PROCESSES:
        return _IN_PROCESSES[kind].format(count)
    return messages.IN_PROCESSES.of(count)


def loader_sentences(
    runs: Sequence[RunReport], settings_of: Callable[[RunReport], Iterator[Setting]]
) -> list[str]:
    """The sentences on the loaders of these runs, one for all runs that share it."""
    names_of: dict[Setting, list[str]] = {}
    for run in runs:
        for setting in settings_of(run):
            names_of.setdefault(setting, []).append(run.run)
    return [
        row.of(len(names), runs=listed(names), **dict(fields))
        for (row, fields), names in names_of.items()
    ]


def slow_settings(run: RunReport) -> Iterator[Setting]:
    """Settings that can make batches late, where no reason is known."""
    workers = run.loader.get("workers")
    if isinstance(workers, int) and not isinstance(workers, bool):
        if workers <= 1:
            yield messages.FEW_WORKERS, (("workers", workers),)
        elif run.loader.get("use_multiprocessing") is False:
            yield messages.WORKERS_ARE_THREADS, (("workers", workers),)
    if run.loader.get("prefetch") in (0, False):
        yield messages.NO_PREFETCH, ()


def copy_settings(run: RunReport) -> Iterator[Setting]:
    """Settings that make copies to the GPU slow."""
    if run.loader.get("kind") == "DataLoader" and run.loader.get("pin_memory") is False:
        yield messages.NOT_PINNED, (("loader", loader_named(run)),)


def epoch_settings(run: RunReport) -> Iterator[Setting]:
    """Settings that cost time between two epochs."""
    hooks = run.loader.get("epoch_hooks")
    if isinstance(hooks, str):
        yield messages.EPOCH_HOOKS, (("hooks", hooks),)
    if run.loader.get("persistent_workers") is False and run.loader.get("workers"):
        yield messages.WORKERS_RESTART, ()
