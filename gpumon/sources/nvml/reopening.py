"""When to close NVML because of its errors, and when to open it again.

After a driver upgrade this process keeps the old library mapped for as long as it lives, and the
new driver refuses it: only a new process helps then, and the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.errors import RestartNeededError, SourceUnavailableError
from gpumon.sources.nvml.codes import (
    GENERAL,
    GPU_IS_LOST,
    RESET_REQUIRED,
    VersionMismatchError,
    mismatch_remedy,
)

_FIRST_WAIT_NS: Final = NS_PER_S // 2
_LONGEST_WAIT_NS: Final = 4 * NS_PER_S
_MISMATCH_PATIENCE_NS: Final = 5 * NS_PER_S
"""An upgrade takes a while; a gpumon that restarts meanwhile would find it half done."""

_SILENCE_NS: Final = 10 * NS_PER_S
_OF_ONE_GPU: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})
_LIBRARY: Final = "libnvidia-ml.so"

_REPLACED: Final = (
    "the NVIDIA driver was replaced, and this process still has the library of the old one: start "
    "gpumon again, and if that does not help, {remedy}"
)


def code_of_the_driver(failures: Sequence[int]) -> int | None:
    """Return the code that shows the driver is gone, if every GPU that was read failed.

    GPUs that were lost before may still answer that.

    >>> code_of_the_driver([15, 999]), code_of_the_driver([15, 15])
    (999, None)
    """
    if not GENERAL.union(_OF_ONE_GPU).issuperset(failures):
        return None
    return next((code for code in failures if code in GENERAL), None)


def library_was_replaced(maps: str) -> bool:
    """Whether ``/proc/self/maps`` has another libnvidia-ml than a new process would get."""
    for line in maps.splitlines():
        if _LIBRARY not in line:
            continue
        *_, path = line.split(maxsplit=5)
        if path.endswith(" (deleted)"):
            return True
        # By name, not by inode: on an overlay the two need not agree.
        now = Path(path).parent / f"{_LIBRARY}.1"
        return now.exists() and now.resolve() != Path(path)
    return False


def _own_maps() -> str:
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class Reopening:
    """When to close NVML, and when to open it again: soon at first, then every 4 s."""

    def __init__(
        self, monotonic_ns: Callable[[], int], own_maps: Callable[[], str] = _own_maps
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._own_maps = own_maps
        self._trouble: SourceUnavailableError | None = None
        self._retry_at_ns = 0
        self._wait_ns = _FIRST_WAIT_NS
        self._silent_since_ns: int | None = None
        self._mismatch_since_ns: int | None = None
        self._has_worked = False

    def check(self) -> None:
        """Raise the last error while it is too early to try again."""
        if self._trouble is not None and self._monotonic_ns() < self._retry_at_ns:
            raise self._trouble

    def opened(self) -> None:
        self._trouble = self._mismatch_since_ns = None
        self._has_worked = True

    def was_read(self) -> None:
        """Record that a GPU could be read: the next failure of NVML is a new one."""
        self._wait_ns, self._silent_since_ns = _FIRST_WAIT_NS, None

    def fatal_code(self, failures: Sequence[int], gpu_count: int, now_ns: int) -> int | None:
        """Return the code for which to close NVML; ``None``: it stays open.

        ``failures`` are the codes of those of the ``gpu_count`` GPUs that could not be read.
        """
        if len(failures) < gpu_count:
            self.was_read()
            return None
        code = code_of_the_driver(failures)
        if code is not None:
            return code
        if self._silent_since_ns is None:
            self._silent_since_ns = now_ns
        # Reopening NVML does no harm, and their handles may need it.
        return failures[0] if now_ns - self._silent_since_ns >= _SILENCE_NS else None

    def failed(self, trouble: SourceUnavailableError) -> SourceUnavailableError:
        """Record a failure of NVML as a whole; return the error to raise, which may say more."""
        now_ns = self._monotonic_ns()
        trouble = self._restart_needed(trouble, now_ns) or trouble
        self._trouble, self._silent_since_ns = trouble, None
        self._retry_at_ns = now_ns + self._wait_ns
        self._wait_ns = min(2 * self._wait_ns, _LONGEST_WAIT_NS)
        return trouble

    def _restart_needed(
        self, trouble: SourceUnavailableError, now_ns: int
    ) -> RestartNeededError | None:
        """The error if only a new process helps; a new process itself waits instead of ending."""
        if not isinstance(trouble, VersionMismatchError):
            self._mismatch_since_ns = None
            return None
        if self._mismatch_since_ns is None:
            self._mismatch_since_ns = now_ns
        lasting = now_ns - self._mismatch_since_ns >= _MISMATCH_PATIENCE_NS
        if (self._has_worked and lasting) or library_was_replaced(self._own_maps()):
            return RestartNeededError(_REPLACED.format(remedy=mismatch_remedy()))
        return None
