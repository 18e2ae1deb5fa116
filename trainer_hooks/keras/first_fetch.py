"""Batches that ``fit`` fetches before ``on_train_begin``, counted as ``input_wait``.

Keras peeks into a generator and, on TensorFlow, into a PyDataset, and builds an unbuilt model from
a first batch. A slow loader or a filling shuffle buffer shows there first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Final

from trainer_hooks.ring.guard import Guard, passes_through
from trainer_hooks.ring.phase_modes import PhaseMode
from trainer_hooks.ring.process_ring import describe_run, ring_so_far
from trainer_hooks.taps import keras_private as private
from trainer_hooks.taps.phase_machine import INPUT_WAIT, START_UP
from trainer_hooks.trainers.patching import PatchedMethods, Proxy
from trainer_hooks.trainers.tagger import is_on_cpu

_ADAPTERS: Final = "keras.src.trainers.data_adapters"


class FirstFetches:
    """Patches those places in Keras, for the whole process, until the run begins.

    In a Keras that keeps them elsewhere, these fetches stay ``start_up``.
    """

    _patched: Final = PatchedMethods()

    @classmethod
    def install(cls) -> None:
        cls.remove()
        _GUARD.reset()
        cls._go_around(f"{_ADAPTERS}.generator_data_adapter", "", "peek_and_restore", _timed)
        cls._go_around(
            f"{_ADAPTERS}.py_dataset_adapter", "PyDatasetAdapter", "get_tf_dataset", _timed_dataset
        )
        cls._go_around("keras.src.trainers.trainer", "Trainer", private.BUILD, _timed_build)

    @classmethod
    def remove(cls) -> None:
        """Restore Keras, except for what others have changed since."""
        cls._patched.remove()

    @classmethod
    def _go_around(
        cls, module: str, kind: str, name: str, around: Callable[[Callable[..., Any]], Any]
    ) -> None:
        with contextlib.suppress(Exception):  # another Keras
            owner = import_module(module)
            owner = getattr(owner, kind) if kind else owner
            cls._patched.install(owner, name, lambda bare: functools.wraps(bare)(around(bare)))


def _timed(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @passes_through
    def timed(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        return _waited_for(fetch, *args, **options)

    return timed


def _timed_dataset(make: Callable[..., Any]) -> Callable[..., Any]:
    @passes_through
    def timed_dataset(adapter: Any) -> Any:  # noqa: ANN401
        dataset = getattr(adapter, "py_dataset", None)
        timed = None if dataset is None else _GUARD.wrap(_TimedItems)(dataset)
        if timed is None:
            return make(adapter)
        adapter.py_dataset = timed
        try:
            return make(adapter)
        finally:
            adapter.py_dataset = dataset

    return timed_dataset


class _TimedItems(Proxy):
    def __init__(self, dataset: Any) -> None:  # noqa: ANN401
        self._original = dataset

    @passes_through
    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        return _waited_for(self._original.__getitem__, index)


def _timed_build(build: Callable[..., Any]) -> Callable[..., Any]:
    @passes_through
    def timed_build(model: Any, iterator: Any = None, *rest: Any, **options: Any) -> Any:  # noqa: ANN401
        feed = None if iterator is None else _timed_feed(iterator)
        return build(model, feed, *rest, **options)

    return timed_build


@passes_through
def _timed_feed(feeder: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield what an epoch's iterator does: step numbers, and batches or an iterator over them."""
    feed = _waited_for(iter, feeder)
    for *steps, batches in _each_waited_for(feed):
        yield (*steps, _each_waited_for(batches) if hasattr(batches, "__next__") else batches)


@passes_through
def _each_waited_for(source: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            item = _waited_for(next, source)
        except StopIteration:
            return
        yield item


@passes_through
def _waited_for(fetch: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
    """Call ``fetch``; its time is ``input_wait`` while the process starts up."""
    before = _begin_wait()
    try:
        return fetch(*args, **options)
    finally:
        if before is not None:
            _end_wait(before)


def _wait_begins() -> PhaseMode | None:
    ring = ring_so_far()
    writer = None if ring is None else ring.writer_for_this_thread
    if writer is None or writer.present[0] != START_UP:
        return None
    _describe_device()
    before = writer.present
    writer.enter(INPUT_WAIT, before[1])
    return before


def _wait_ends(before: PhaseMode) -> None:
    ring = ring_so_far()
    writer = None if ring is None else ring.writer_for_this_thread
    if writer is not None and writer.present[0] == INPUT_WAIT:
        writer.enter(*before)


def _describe_device() -> None:
    """Record where the steps will compute, before the first wait for input begins."""
    with contextlib.suppress(Exception):  # another Keras
        backend = import_module("keras").config.backend()
        if backend != "torch":  # there it depends on the model, known when training begins
            describe_run(on_cpu=is_on_cpu(backend, None))


_GUARD: Final = Guard(lambda _: FirstFetches.remove())
_begin_wait, _end_wait = _GUARD.wrap(_wait_begins), _GUARD.wrap(_wait_ends)
