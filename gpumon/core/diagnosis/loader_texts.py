"""How an input pipeline is spoken of: by the user's own names, as far as its run tells them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.report.report import RunReport
from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.facts import VALIDATION_FACTS
from gpumon.core.wording import counted, label_text, listed

_WORKERS_ARGUMENT: Final[Mapping[str, str]] = {
    "DataLoader": "num_workers",
    "PyDataset": "workers",
    "grain": "worker_count",
    "tf.data": "num_parallel_calls",
}
"""What each kind of loader calls the number of its workers."""
_IN_PROCESSES: Final[Mapping[str, str]] = {
    "DataLoader": "num_workers={}",
    "PyDataset": "workers={}, use_multiprocessing=True",
    "grain": "worker_count={}",
}
_A_LOADER: Final = "(a DataLoader or a PyDataset with workers, or multiprocessing)"


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
    return _named(facts, f"the validation's loader of {run.run}") if facts else ""


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
    """How that loader is told to work in so many processes."""
    kind = "" if run is None else str(run.loader.get("kind"))
    if kind == "tf.data":
        return "map with num_parallel_calls=tf.data.AUTOTUNE and end in .prefetch(tf.data.AUTOTUNE)"
    if kind in _IN_PROCESSES:
        return f"set {_IN_PROCESSES[kind].format(count)}"
    return f"load in {counted(count, 'process', 'processes')} beside it {_A_LOADER}"


def loader_sentences(
    runs: Sequence[RunReport], wordings_of: Callable[[RunReport], Iterator[tuple[str, str]]]
) -> list[str]:
    """What is to be said of the loaders of these runs, once for all that share it."""
    names_of: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for wording in wordings_of(run):
            names_of.setdefault(wording, []).append(run.run)
    return [wording[len(names) > 1].format(listed(names)) for wording, names in names_of.items()]


def setting_wordings(run: RunReport) -> Iterator[tuple[str, str]]:
    """What a loader's settings say where nobody knows why it is late: of one run, of several."""
    workers = run.loader.get("workers")
    if isinstance(workers, int) and not isinstance(workers, bool):
        if workers <= 1:
            more = f"workers={workers}: raise it, towards the number of CPU cores."
            yield f"The loader of {{}} has {more}", f"The loaders of {{}} have {more}"
        elif run.loader.get("use_multiprocessing") is False:
            more = "are threads: if they run Python code, set use_multiprocessing=True."
            yield (
                f"The {workers} workers of {{}} {more}",
                f"The {workers} workers of each of {{}} {more}",
            )
    if run.loader.get("prefetch") in (0, False):
        yield (
            "The loader of {} prefetches nothing: let it work one or two batches ahead.",
            "The loaders of {} prefetch nothing: let them work one or two batches ahead.",
        )


def copy_wordings(run: RunReport) -> Iterator[tuple[str, str]]:
    """What of a loader's settings makes copies to the GPU slow: of one run, and of several."""
    if run.loader.get("kind") == "DataLoader" and run.loader.get("pin_memory") is False:
        named = loader_named(run).replace("{", "{{").replace("}", "}}")
        yield (
            f"{named} has pin_memory=False: set pin_memory=True, and copy with non_blocking=True.",
            "The DataLoaders of {} have pin_memory=False: set pin_memory=True, and copy with "
            "non_blocking=True.",
        )


def epoch_wordings(run: RunReport) -> Iterator[tuple[str, str]]:
    """What a loader does between two epochs: of one run, and of several."""
    hooks = run.loader.get("epoch_hooks")
    if isinstance(hooks, str):
        cheaper = "while the GPU waits: make that cheaper (shuffle indices, not data)."
        yield (
            f"{hooks} of the PyDataset of {{}} is called between two epochs, {cheaper}",
            f"{hooks} of the PyDatasets of {{}} is called between two epochs, {cheaper}",
        )
    if run.loader.get("persistent_workers") is False and run.loader.get("workers"):
        anew = "anew for each epoch: persistent_workers=True keeps them."
        yield (
            f"The loader of {{}} starts its workers {anew}",
            f"The loaders of {{}} start their workers {anew}",
        )
