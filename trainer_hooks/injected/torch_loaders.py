"""The loops of a script over ``DataLoader`` of PyTorch: each fetch is ``input_wait``.

Only on the main thread, outside a trainer, and where the script has no tags of its own. A loop
without gradients, as under ``torch.no_grad()``, is ``validation``. A step is a batch in which an
optimizer made a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import get_worker_info

from gpumon.core.ring_format.events import LOOP_BEGAN, LOOP_ENDED
from trainer_hooks import injected
from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.guard import guards_itself, passes_through, quietly
from trainer_hooks.ring.process_ring import ring_for_phase, ring_so_far
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers.loader_facts import has_facts, loader_facts, report_loader
from trainer_hooks.trainers.patching import TransparentProxy

_INPUT_WAIT: Final = modes.INPUT_WAIT[modes.TRAIN_MODE][0]


@passes_through
def around(
    method: str,
    bare: Callable[..., Any],
    loader: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Return the loader's iterator; the start of its workers and each fetch are ``input_wait``."""
    writer = quietly(_writer_of_loop)
    if writer is None:
        return bare(loader, *args, **named)
    quietly(_report, writer, loader)
    is_outermost = quietly(_fetch_begins, writer)
    try:
        iterator = bare(loader, *args, **named)
    finally:
        if is_outermost:
            quietly(_fetch_ends, writer)
    batches = quietly(_batches_of, iterator)
    return iterator if batches is None else batches


class _Batches(TransparentProxy):
    """The loader's own iterator, which reports its fetches."""

    _is_in_loop = False

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._original = iterator
        writer = _writer_here()
        if writer is not None and torch.is_grad_enabled():
            self._is_in_loop = True
            writer.event(LOOP_BEGAN)

    @passes_through
    def __iter__(self) -> _Batches:
        return self

    @passes_through
    def __next__(self) -> Any:
        writer = quietly(_writer_here)
        if writer is None:
            return next(self._original)
        is_outermost = quietly(_fetch_begins, writer)
        is_last = True
        try:
            batch = next(self._original)
            is_last = False
            return batch
        finally:
            if is_outermost:
                quietly(_fetch_ends, writer)
            if is_last:  # or it has raised
                quietly(self._end_loop)

    @passes_through
    def __del__(self) -> None:
        try:  # noqa: SIM105 (at the interpreter's exit even ``contextlib`` may be gone)
            quietly(self._end_loop)  # no further batch will be requested
        except Exception:  # noqa: BLE001
            pass

    def _end_loop(self) -> None:
        writer = _writer_here()
        if writer is None:
            return
        if self._is_in_loop:
            self._is_in_loop = False
            writer.event(LOOP_ENDED)
        elif writer.present == modes.VALIDATION:
            writer.enter(*modes.OTHER)


class _SizedBatches(_Batches):
    @passes_through
    def __len__(self) -> int:
        return len(self._original)


def _batches_of(iterator: Iterator[Any]) -> _Batches:
    return (_SizedBatches if hasattr(iterator, "__len__") else _Batches)(iterator)


def _writer_of_loop() -> RingWriter | None:
    """The writer of this process's ring, made now; ``None`` where this loop must not be tagged."""
    if injected.script_imported_hooks or injected.inside_trainer or get_worker_info() is not None:
        return None
    if threading.current_thread() is not threading.main_thread():
        return None
    ring = ring_for_phase(modes.OTHER[0])  # none in a worker of a tagged process
    if ring is not None and ring.writer is not None and not _Steps.is_counted:
        _Steps.is_counted = True
        register_optimizer_step_post_hook(_optimizer_stepped)
    return _writer_here()


def _writer_here() -> RingWriter | None:
    """The writer, if this thread's loops are tagged and no trainer runs."""
    ring = None if injected.inside_trainer else ring_so_far()
    return None if ring is None else ring.writer_for_this_thread


class _Steps:
    """The module's state.

    Attributes:
        is_counted: Whether optimizers report their steps.
        has_stepped: Whether one has made a step since the last fetch.
    """

    is_counted = False
    has_stepped = False


@guards_itself
def _optimizer_stepped(*_: object) -> None:
    _Steps.has_stepped = True


def _fetch_begins(writer: RingWriter) -> bool:
    """Begin a wait for input, unless a fetch under way needs this one; return whether it did."""
    if writer.present[0] == _INPUT_WAIT:
        return False
    if _Steps.has_stepped:
        _Steps.has_stepped = False
        writer.step(1, 0)
    mode = modes.TRAIN_MODE if torch.is_grad_enabled() else modes.VALIDATION_MODE
    writer.enter(*modes.INPUT_WAIT[mode])
    return True


def _fetch_ends(writer: RingWriter) -> None:
    is_training = writer.present[1] == modes.TRAIN_MODE
    writer.enter(*(modes.OTHER if is_training else modes.VALIDATION))


def _report(writer: RingWriter, loader: Any) -> None:
    validates = not torch.is_grad_enabled()
    if not has_facts(writer.facts.loader, validates=validates):
        report_loader(loader_facts(loader), validates=validates, by_trainer=False)
