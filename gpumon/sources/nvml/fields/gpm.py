"""How much of a GPU works while it is busy: NVML's GPM, on Hopper and later.

GPM keeps counters on the board. A sample is a copy of them, and the difference of two samples at
least 100 ms apart is what happened in between. Each reading goes from the last sample to a new
one, so consecutive readings leave no gap; the two samples of a GPU are swapped and reused. GPM
takes no lock of profilers, so it can be read while one runs.

One reading at a time: the driver does not guarantee that two may sample one GPU at once, the
answer buffer is one for all GPUs, and a sample must not be freed while another call reads it.
GPUs are read on the slow thread, instances in the tick: those do not wait, and lose nothing,
because the next reading starts at the last sample.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.codes import PERMANENT, SUCCESS
from gpumon.sources.nvml.fields.table import GPM_METRICS, GPM_SAMPLE

SHORTEST_NS: Final = 100_000_000
"""The board does not update its counters faster than that."""

_METRICS: Final = (1, 2, 3, 5, 10)
"""Any engine, SM activity, SM occupancy, tensor cores, DRAM: as in ``ActivitySample``."""

_MAX_METRICS: Final = 1024
"""More than any driver has: the array grew from 98 to 477 while its version stayed 1, and a driver
with a longer one than ours would write beyond it."""

_VERSION: Final = 1
_SAMPLES: Final = 2

_WHOLE_PERCENT: Final = 101.0
"""Counters that are not copied at one time can add up to a little more than all. Assumed."""


class _Metric(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("code", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("texts", ctypes.c_void_p * 3),
    )


class _Metrics(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("earlier", ctypes.c_void_p),
        ("later", ctypes.c_void_p),
        ("metrics", _Metric * _MAX_METRICS),
    )


class _Support(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("is_supported", ctypes.c_uint))


class Gpm:
    """GPM for all GPUs of one opening of NVML.

    Attributes:
        holders: The tracks that have samples in the driver.
        reading: The lock for taking and comparing samples.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        monotonic_ns: Callable[[], int],
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        """Allocate the answer buffer; makes no call yet."""
        self.monotonic_ns, self.refuse = monotonic_ns, refuse
        self._call = library.call
        self.holders: set[GpmTrack] = set()
        self.reading = threading.Lock()
        self._room = _Metrics(version=_VERSION, count=len(_METRICS))
        for at, metric in enumerate(_METRICS):
            self._room.metrics[at].id = metric

    def track(self, handle: int, *, gpu_instance: int | None = None) -> GpmTrack:
        """Return a track of one GPU, or of one GPU instance on it; close it when that is gone."""
        return GpmTrack(self, handle, gpu_instance)

    def close(self) -> None:
        """Free every sample; must come before NVML is closed."""
        for track in list(self.holders):
            track.close()

    def supports(self, handle: int) -> bool | None:
        """Whether that GPU has GPM; ``None``: no answer now."""
        code, is_supported = self.query(handle)
        return None if code != SUCCESS and code not in PERMANENT else is_supported

    def query(self, handle: int) -> tuple[int, bool]:
        """Return the driver's code and, on success, whether that GPU has GPM."""
        answer = _Support(version=_VERSION)
        gpu = ctypes.c_void_p(handle)
        code = self._call("nvmlGpmQueryDeviceSupport", gpu, ctypes.byref(answer))
        return code, code == SUCCESS and answer.is_supported != 0

    def new_sample(self) -> int | None:
        """Allocate a sample in the driver; ``None``: it has no memory for it."""
        sample = ctypes.c_void_p()
        code = self._call("nvmlGpmSampleAlloc", ctypes.byref(sample))
        return sample.value if code == SUCCESS else None

    def free(self, samples: Iterable[int]) -> None:
        for sample in samples:
            self._call("nvmlGpmSampleFree", ctypes.c_void_p(sample))

    def copy_counters(self, handle: int, gpu_instance: int | None, sample: int) -> int:
        """Copy the board's counters into a sample; return the driver's code."""
        gpu, where = ctypes.c_void_p(handle), ctypes.c_void_p(sample)
        if gpu_instance is None:
            return self._call(GPM_SAMPLE.function, gpu, where)
        return self._call("nvmlGpmMigSampleGet", gpu, ctypes.c_uint(gpu_instance), where)

    def between(self, earlier: int, later: int) -> tuple[int, list[float | None]]:
        """Compare two samples.

        Returns:
            The driver's code and, on success, percentages of the time in the order of
            ``_METRICS``; ``None``: no answer.
        """
        self._room.earlier, self._room.later = earlier, later
        code = self._call(GPM_METRICS.function, ctypes.byref(self._room))
        if code != SUCCESS:
            return code, []
        return code, [
            metric.value if metric.code == SUCCESS else None
            for metric in self._room.metrics[: len(_METRICS)]
        ]


class GpmTrack:
    """The activity of one GPU, or of one GPU instance, from reading to reading.

    Attributes:
        code: The driver's last code, when a sample was taken or compared.
    """

    def __init__(self, gpm: Gpm, handle: int, gpu_instance: int | None) -> None:
        self._gpm, self._handle, self._gpu_instance = gpm, handle, gpu_instance
        # An instance has no other utilisation; for a GPU this is one field of many.
        self._rests_ns = 5 * NS_PER_S if gpu_instance is not None else 60 * NS_PER_S
        self._call_again_at_ns: int | None = 0
        self._samples: tuple[int, int] | None = None  # the earlier, and room for the next
        self._taken_at_ns: int | None = None  # the earlier, where it holds something
        self.code = SUCCESS

    def read(self, since_ns: int = 0) -> ActivitySample | None:
        """Return the activity from the last sample to now; one before ``since_ns`` is not used.

        Returns:
            ``None`` without a sample to compare with, if that was taken less than 100 ms ago (it
            is kept then), without an answer, or, for an instance, while another GPU is read.
        """
        if not self._gpm.reading.acquire(blocking=self._gpu_instance is None):
            return None
        try:
            return self._read(since_ns)
        finally:
            self._gpm.reading.release()

    def _read(self, since_ns: int) -> ActivitySample | None:
        samples = self._samples or self._borrow()
        if samples is None:
            return None
        gpm, earlier_ns = self._gpm, self._taken_at_ns
        began_ns = gpm.monotonic_ns()
        if earlier_ns is not None and began_ns - earlier_ns < SHORTEST_NS:
            return None
        earlier, later = samples
        self.code = gpm.copy_counters(self._handle, self._gpu_instance, later)
        if self.code != SUCCESS:
            self._taken_at_ns = None  # the time up to the next sample is not covered
            self._rest_if_refused()
            return None
        # The counters were copied at some time within the call.
        taken_at_ns = began_ns + (gpm.monotonic_ns() - began_ns) // 2
        self._samples, self._taken_at_ns = (later, earlier), taken_at_ns
        if earlier_ns is None or earlier_ns < since_ns:
            return None
        self.code, percents = gpm.between(earlier, later)
        self._rest_if_refused()
        return self._sample(earlier_ns, taken_at_ns, percents)

    def close(self) -> None:
        """Free the samples. The next reading allocates new ones."""
        if self._samples is not None:
            self._gpm.holders.discard(self)
            self._gpm.free(self._samples)
        self._samples = self._taken_at_ns = None

    def _borrow(self) -> tuple[int, int] | None:
        """Allocate two samples, if the GPU has GPM and may be called now."""
        if self._call_again_at_ns is None or self._gpm.monotonic_ns() < self._call_again_at_ns:
            return None
        gpm = self._gpm
        self.code, supported = gpm.query(self._handle)
        if supported:
            samples = [sample for sample in (gpm.new_sample(), gpm.new_sample()) if sample]
            if len(samples) < _SAMPLES:
                gpm.free(samples)
                return None
            self._samples = samples[0], samples[1]
            gpm.holders.add(self)
        elif self.code == SUCCESS:
            self._call_again_at_ns = None  # a board that has none will have none
        else:
            self._rest_if_refused()
        return self._samples

    def _rest_if_refused(self) -> None:
        """Pause calls that are not supported or not permitted: that may change."""
        if self.code in PERMANENT:
            self._call_again_at_ns = self._gpm.monotonic_ns() + self._rests_ns
            self.close()

    def _sample(
        self, start_ns: int, end_ns: int, percents: list[float | None]
    ) -> ActivitySample | None:
        ratios: list[float | None] = []
        for percent in percents:
            if percent is not None and 100.0 < percent <= _WHOLE_PERCENT:
                percent = 100.0
            if percent is not None and not 0.0 <= percent <= 100.0:  # NaN is not, either
                self._gpm.refuse()
                percent = None
            ratios.append(None if percent is None else percent / 100.0)
        if ratios.count(None) == len(ratios):
            return None
        return ActivitySample(start_ns, end_ns, *ratios)
