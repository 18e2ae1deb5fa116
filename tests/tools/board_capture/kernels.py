"""What the load computes: a kernel that fills the board, and one that hardly touches it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

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


class DeviceTimer(Protocol):
    """How long the device itself says that it worked."""

    def begin(self) -> None:
        """Before the first launch."""
        ...

    def end(self) -> None:
        """After the last."""
        ...

    def seconds(self) -> float | None:
        """Between the two, once the device is done; ``None`` where it does not say."""
        ...


class NoTimer:
    """Of a device that does not say."""

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def seconds(self) -> float | None:
        return None


class Profile(Protocol):
    """What a profiler saw."""

    def kernel_spans(self) -> list[tuple[int, int]]:
        """When kernels ran, merged, in CLOCK_MONOTONIC nanoseconds."""
        ...


class Kernels(Protocol):
    """A framework on one device.

    Attributes:
        name: Framework, device and sizes, for people.
        can_profile: Whether ``profiled`` can tell when kernels ran.
    """

    name: str
    can_profile: bool

    def launch(self, kind: str) -> Wait:
        """Launch ``"full"`` or ``"small"`` work, some ms of it."""
        ...

    def step(self) -> None:
        """One step of a training whose kernels are small, waited for."""
        ...

    def timer(self) -> DeviceTimer:
        """A stopwatch of the device's own."""
        ...

    def profiled(self) -> AbstractContextManager[Profile]:
        """Watch kernels meanwhile."""
        ...


def find_kernels(device: str) -> tuple[Kernels | None, list[str]]:
    """The first framework that can compute on that device.

    Args:
        device: ``"cuda"``, or ``"cpu"`` to try the program without a GPU.

    Returns:
        The kernels, or ``None`` and the reasons, one for each framework.
    """
    makers: dict[str, Callable[[str], Kernels]] = {"torch": TorchKernels, "jax": JaxKernels}
    reasons = []
    for name, make in makers.items():
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


def _shortest_s(work: Callable[[], None]) -> float:
    """Of some turns: the first compiles, and on a busy machine another may be late."""
    times_s = []
    for _ in range(4):
        began_s = time.monotonic()
        work()
        times_s.append(time.monotonic() - began_s)
    return min(times_s)


class TorchKernels:
    """PyTorch."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch, self._device = torch, device
        self.can_profile = device == "cuda"
        is_old = device == "cuda" and torch.cuda.get_device_capability() < (8, 0)
        self._kind = torch.float16 if is_old else torch.bfloat16
        if device != "cuda":
            self._kind = torch.float32
        self._small = torch.rand(SMALL_SIDE, SMALL_SIDE, device=device)
        side = fitting_side(self._time_of) if device == "cuda" else CPU_SIDE
        self._make(side)
        told = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
        words = str(self._kind).removeprefix("torch.")
        self.name = f"torch {torch.__version__} on {told}, {side} x {side} products in {words}"
        for kernel in ("full", "small"):
            self.launch(kernel)()

    def _make(self, side: int) -> None:
        torch = self._torch
        self._full = torch.rand(side, side, device=self._device).to(self._kind)
        self._out = torch.empty_like(self._full)

    def _time_of(self, side: int) -> float:
        self._make(side)
        return _shortest_s(lambda: self.launch("full")())

    def launch(self, kind: str) -> Wait:
        torch = self._torch
        if kind == "full":
            torch.matmul(self._full, self._full, out=self._out)
        else:
            for _ in range(_SMALL_IN_A_LAUNCH):
                self._small.add_(1.0)
        if self._device != "cuda":
            return lambda: None
        done = torch.cuda.Event()
        done.record()
        return lambda: done.synchronize()

    def step(self) -> None:
        for _ in range(_SMALL_IN_A_STEP):
            self._small.add_(1.0)
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def timer(self) -> DeviceTimer:
        return _TorchTimer(self._torch) if self._device == "cuda" else NoTimer()

    @contextmanager
    def profiled(self) -> Iterator[Profile]:
        from torch.profiler import ProfilerActivity, profile, record_function

        kinds = [ProfilerActivity.CPU]
        if self._device == "cuda":
            kinds.append(ProfilerActivity.CUDA)
        found = _TorchProfile()
        with profile(activities=kinds) as profiler:
            _marks(record_function)
            yield found
            _marks(record_function)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            found.spans = kernel_spans(path.read_text(encoding="utf-8"))


class _TorchTimer:
    """Two CUDA events."""

    def __init__(self, torch: Any) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def begin(self) -> None:
        self._events[0].record()

    def end(self) -> None:
        self._events[1].record()

    def seconds(self) -> float | None:
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1])) / 1000


class _TorchProfile:
    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def kernel_spans(self) -> list[tuple[int, int]]:
        return self.spans


def _marks(record_function: Callable[[str], Any]) -> None:
    """Regions that are named after the clock: they tie the profiler's clock to ours."""
    for _ in range(20):
        with record_function(f"{MARK}{time.monotonic_ns()}"):
            pass


class JaxKernels:
    """JAX."""

    can_profile = False

    def __init__(self, device: str) -> None:
        import jax
        import jax.numpy as jnp

        (where, *_) = jax.devices("gpu" if device == "cuda" else "cpu")
        kind = jnp.bfloat16 if device == "cuda" else jnp.float32
        self._make: Callable[[int], Any] = lambda side: jax.device_put(
            jnp.ones((side, side), kind) / side, where
        )
        self._small = jax.device_put(jnp.ones((SMALL_SIDE, SMALL_SIDE)), where)
        self._product = jax.jit(lambda a: a @ a)
        self._add = jax.jit(lambda a: a + 1.0)
        side = fitting_side(self._time_of) if device == "cuda" else CPU_SIDE
        self._full = self._make(side)
        self.name = (
            f"jax {jax.__version__} on {where.device_kind}, {side} x {side} products in "
            f"{jnp.dtype(kind).name}"
        )
        for kernel in ("full", "small"):
            self.launch(kernel)()

    def _time_of(self, side: int) -> float:
        self._full = self._make(side)
        return _shortest_s(lambda: self.launch("full")())

    def launch(self, kind: str) -> Wait:
        if kind == "full":
            out = self._product(self._full)
        else:
            out = self._small
            for _ in range(_SMALL_IN_A_LAUNCH):
                out = self._add(out)
        return lambda: out.block_until_ready()

    def step(self) -> None:
        out = self._small
        for _ in range(_SMALL_IN_A_STEP):
            out = self._add(out)
        out.block_until_ready()

    def timer(self) -> DeviceTimer:
        return NoTimer()

    def profiled(self) -> AbstractContextManager[Profile]:
        raise NotImplementedError("when kernels ran is taken from torch's profiler only")
