"""How each tool is put into a plain torch loop, as its own documentation says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class Hook(Protocol):
    """The places of a loop at which a tool may want to be reported something."""

    def watching(self) -> contextlib.AbstractContextManager[Any]:
        """Around the whole loop."""
        ...

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        """In the place of the loader."""
        ...

    def step(self, model: Any) -> contextlib.AbstractContextManager[Any]:  # noqa: ANN401
        """Around forward, backward and the optimizer's step."""
        ...

    def stepped(self, samples: int) -> None:
        """After each step."""
        ...

    def region(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """Around a checkpoint, a validation, or the callbacks of a step."""
        ...


class Bare:
    """No one watches."""

    def __init__(self) -> None:
        self._nothing = contextlib.nullcontext()

    def watching(self) -> contextlib.AbstractContextManager[Any]:
        return self._nothing

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        return loader

    def step(self, model: Any) -> contextlib.AbstractContextManager[Any]:  # noqa: ANN401
        return self._nothing

    def stepped(self, samples: int) -> None:
        return None

    def region(self, name: str) -> contextlib.AbstractContextManager[Any]:
        return self._nothing


class Gpumon(Bare):
    """``timed()`` around the loader, ``phase()`` around the rest, ``step()`` after each step."""

    def __init__(self) -> None:
        super().__init__()
        import trainer_hooks

        self._hooks = trainer_hooks
        self._train_step = trainer_hooks.phase("train_step")

    def batches(self, loader: Iterable[Any]) -> Iterable[Any]:
        return self._hooks.timed(loader)

    def step(self, model: Any) -> contextlib.AbstractContextManager[Any]:  # noqa: ANN401
        return self._train_step

    def stepped(self, samples: int) -> None:
        self._hooks.step(samples)

    def region(self, name: str) -> contextlib.AbstractContextManager[Any]:
        return self._hooks.phase(name)


class TraceMl(Bare):
    """``init()`` once and ``trace_step()`` around each step; it has no regions of one's own."""

    def __init__(self) -> None:
        super().__init__()
        import traceml_ai

        traceml_ai.init(mode="auto")
        self._traceml = traceml_ai

    def step(self, model: Any) -> contextlib.AbstractContextManager[Any]:  # noqa: ANN401
        step: contextlib.AbstractContextManager[Any] = self._traceml.trace_step(model)
        return step


class Gpuprof(Bare):
    """One ``with profile()`` around the loop."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        import gpuprof

        with gpuprof.profile("training"):
            yield


HOOKS: dict[str, type[Bare]] = {
    "bare": Bare,
    "gpumon": Gpumon,
    "traceml": TraceMl,
    "gpuprof": Gpuprof,
}
