"""What the load computes: a kernel that fills the board, and one that hardly touches it."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.tools.board_capture.profile_trace import MARK, kernel_spans

FULL_SIDE: Final = 8192
"""Of the matrices that fill the board: 1.1 TFLOP a product. Halved for a board that is slow."""
CPU_SIDE: Final = 256
_LONGEST_S: Final = 0.01
"""A product takes no longer: a wave ends only when what is under way is done."""
SMALL_SIDE: Final = 64
_SMALL_IN_A_LAUNCH: Final = 200
_SMALL_IN_A_STEP: Final = 50

Wait = Callable[[], None]
"""Returns when the device is done with what was launched."""


class Kernels(ABC):
    """A framework on one device.

    Attributes:
        name: Framework, device and sizes, for people.
        can_profile: Whether ``profiled`` can tell when kernels ran.
    """

    name: str
    can_profile = False

    def _begin(self, framework: str, device: str, kind: str, *, is_on_gpu: bool) -> None:
        """Make the matrices, and launch everything once."""
        side = fitting_side(self._time_of) if is_on_gpu else CPU_SIDE
        self._make(side)
        self.name = f"{framework} on {device}, {side} x {side} products in {kind}"
        for kernel in ("full", "small"):
            self.launch(kernel)()

    def _time_of(self, side: int) -> float:
        """Of some turns the shortest: the first compiles, and another may be late."""
        self._make(side)
        times_s = []
        for _ in range(4):
            began_s = time.monotonic()
            self._multiply()()
            times_s.append(time.monotonic() - began_s)
        return min(times_s)

    @abstractmethod
    def _make(self, side: int) -> None:
        """Make large matrices of that side."""

    @abstractmethod
    def _multiply(self) -> Wait:
        """Launch one product of them."""

    @abstractmethod
    def _add(self, times: int) -> Wait:
        """Launch so many sums of small matrices."""

    def launch(self, kind: str) -> Wait:
        """Launch ``"full"`` or ``"small"`` work, some ms of it."""
        return self._multiply() if kind == "full" else self._add(_SMALL_IN_A_LAUNCH)

    def step(self) -> None:
        """One step of a training whose kernels are small, waited for."""
        self._add(_SMALL_IN_A_STEP)()

    def event(self) -> Any:
        """A moment between two launches, noted by the device; ``None`` where it notes none."""
        return None

    def profiled(self) -> AbstractContextManager[list[tuple[int, int]]]:
        """Watch kernels meanwhile; afterwards the list says when they ran, as spans do."""
        raise NotImplementedError("when kernels ran is taken from torch's profiler only")


def find_kernels(device: str) -> tuple[Kernels | None, list[str]]:
    """The first framework that can compute on that device.

    Args:
        device: ``"cuda"``, or ``"cpu"`` to try the program without a GPU.

    Returns:
        The kernels, or ``None`` and the reasons, one for each framework.
    """
    reasons = []
    for name, make in {"torch": TorchKernels, "jax": JaxKernels}.items():
        made = _made(make, device)
        if not isinstance(made, str):
            return made, []
        reasons.append(f"{name}: {made}")
    return None, reasons


def _made(make: Callable[[str], Kernels], device: str) -> Kernels | str:
    try:
        return make(device)
    except Exception as error:  # noqa: BLE001 (not installed, or it does not see the board)
        return f"{type(error).__name__}: {error}"


def fitting_side(time_of: Callable[[int], float]) -> int:
    """The longest side with which a product takes no longer than it may.

    Args:
        time_of: Makes matrices of that side, and times one product, in seconds.

    >>> fitting_side(lambda side: 0.03 * (side / 8192) ** 3)
    4096
    """
    side = FULL_SIDE
    while side > CPU_SIDE and time_of(side) > _LONGEST_S:
        side //= 2
    return side


class TorchKernels(Kernels):
    """PyTorch."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch, self._device = torch, device
        self.can_profile = is_on_gpu = device == "cuda"
        self._kind = torch.float32
        if is_on_gpu:
            is_old = torch.cuda.get_device_capability() < (8, 0)
            self._kind = torch.float16 if is_old else torch.bfloat16
        self._small = torch.rand(SMALL_SIDE, SMALL_SIDE, device=device)
        told = torch.cuda.get_device_name() if is_on_gpu else "the CPU"
        kind = str(self._kind).removeprefix("torch.")
        self._begin(f"torch {torch.__version__}", told, kind, is_on_gpu=is_on_gpu)

    def _make(self, side: int) -> None:
        self._full = self._torch.rand(side, side, device=self._device).to(self._kind)
        self._out = self._torch.empty_like(self._full)

    def _multiply(self) -> Wait:
        self._torch.matmul(self._full, self._full, out=self._out)
        return self._done()

    def _add(self, times: int) -> Wait:
        for _ in range(times):
            self._small.add_(1.0)
        return self._done()

    def _done(self) -> Wait:
        if self._device != "cuda":
            return lambda: None
        done = self._torch.cuda.Event()
        done.record()
        return lambda: done.synchronize()

    def event(self) -> Any:
        if self._device != "cuda":
            return None
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def profiled(self) -> Iterator[list[tuple[int, int]]]:
        from torch.profiler import ProfilerActivity, profile, record_function

        def mark() -> None:
            """Regions that are named after the clock: they tie the profiler's clock to ours."""
            for _ in range(20):
                with record_function(f"{MARK}{time.monotonic_ns()}"):
                    pass

        kinds = [ProfilerActivity.CPU]
        if self._device == "cuda":
            kinds.append(ProfilerActivity.CUDA)
        found: list[tuple[int, int]] = []
        with profile(activities=kinds) as profiler:
            mark()
            yield found
            mark()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            found += kernel_spans(path.read_text(encoding="utf-8"))


class JaxKernels(Kernels):
    """JAX."""

    def __init__(self, device: str) -> None:
        import jax
        import jax.numpy as jnp

        is_on_gpu = device == "cuda"
        (where, *_) = jax.devices("gpu" if is_on_gpu else "cpu")
        kind = jnp.bfloat16 if is_on_gpu else jnp.float32
        self._matrix: Callable[[int], Any] = lambda side: jax.device_put(
            jnp.ones((side, side), kind) / side, where
        )
        self._small = jax.device_put(jnp.ones((SMALL_SIDE, SMALL_SIDE)), where)
        self._product = jax.jit(lambda a: a @ a)
        self._sum = jax.jit(lambda a: a + 1.0)
        name = jnp.dtype(kind).name
        self._begin(f"jax {jax.__version__}", where.device_kind, name, is_on_gpu=is_on_gpu)

    def _make(self, side: int) -> None:
        self._full = self._matrix(side)

    def _multiply(self) -> Wait:
        out = self._product(self._full)
        return lambda: out.block_until_ready()

    def _add(self, times: int) -> Wait:
        out = self._small
        for _ in range(times):
            out = self._sum(out)
        return lambda: out.block_until_ready()
