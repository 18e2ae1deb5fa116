"""How much of a GPU works while it is busy: NVML's GPM, on Hopper and later.

GPM keeps counters on the board. A sample is a copy of them, and two samples at
least 100 ms apart give what happened in between. Each reading is from the
last sample to a new one, so consecutive readings cover all time, without a
gap; the two samples of a GPU are swapped, and never made anew. It takes no
lock of the profilers', so it can be read beside one.

One reading at a time: the driver does not promise that two may take samples
of one GPU at once, the room for the answers is one for all GPUs, and a sample
must not be freed while another call reads it. Whole GPUs are read beside the
sampling, instances in it: those do not wait, and lose nothing, for the next
reading reaches back to the last.
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
"""Two samples that are nearer to each other say nothing: the board updates them no faster."""

_METRICS: Final = (1, 2, 3, 5, 10)
"""Any engine, SM activity, SM occupancy, tensor cores, DRAM: as in ``ActivitySample``."""

_MOST_METRICS: Final = 1024
"""More than any driver knows: the array grew from 98 to 477 while its version stayed 1, and a
driver that believed in a longer one than ours would write beyond it."""

_VERSION: Final = 1
_SAMPLES: Final = 2

_WHOLE_PERCENT: Final = 101.0
"""Counters that are not copied at one instant can make a little more than the whole. Assumed."""


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
        ("metrics", _Metric * _MOST_METRICS),
    )


class _Support(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("is_supported", ctypes.c_uint))


class Gpm:
    """GPM of NVML as it was opened, for all its GPUs.

    Attributes:
        holders: Who has samples in the driver.
        reading: Held by whoever takes or compares samples.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        monotonic_ns: Callable[[], int],
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        """Make room for answers; nothing is asked yet."""
        self.monotonic_ns, self.refuse = monotonic_ns, refuse
        self._ask = library.ask
        self.holders: set[GpmTrack] = set()
        self.reading = threading.Lock()
        self._room = _Metrics(version=_VERSION, count=len(_METRICS))
        for at, metric in enumerate(_METRICS):
            self._room.metrics[at].id = metric

    def track(self, handle: int, *, gpu_instance: int | None = None) -> GpmTrack:
        """What is known of one GPU, or of one GPU instance on it; close it when that is gone."""
        return GpmTrack(self, handle, gpu_instance)

    def close(self) -> None:
        """Free every sample: before NVML is closed, which then could not."""
        for track in list(self.holders):
            track.close()

    def supports(self, handle: int) -> bool | None:
        """Whether that GPU has GPM; ``None``: it cannot be said just now."""
        code, is_supported = self.query(handle)
        return None if code != SUCCESS and code not in PERMANENT else is_supported

    def query(self, handle: int) -> tuple[int, bool]:
        """The driver's code, and, where that is success, whether that GPU has GPM."""
        answer = _Support(version=_VERSION)
        gpu = ctypes.c_void_p(handle)
        code = self._ask("nvmlGpmQueryDeviceSupport", gpu, ctypes.byref(answer))
        return code, code == SUCCESS and answer.is_supported != 0

    def new_sample(self) -> int | None:
        """Room for the counters of one GPU, which lies in the driver; ``None``: it has none."""
        sample = ctypes.c_void_p()
        code = self._ask("nvmlGpmSampleAlloc", ctypes.byref(sample))
        return sample.value if code == SUCCESS else None

    def free(self, samples: Iterable[int]) -> None:
        """Give them back. They mean nothing afterwards."""
        for sample in samples:
            self._ask("nvmlGpmSampleFree", ctypes.c_void_p(sample))

    def take(self, handle: int, gpu_instance: int | None, sample: int) -> int:
        """Copy the board's counters into a sample; gives the driver's code."""
        gpu, where = ctypes.c_void_p(handle), ctypes.c_void_p(sample)
        if gpu_instance is None:
            return self._ask(GPM_SAMPLE.function, gpu, where)
        return self._ask("nvmlGpmMigSampleGet", gpu, ctypes.c_uint(gpu_instance), where)

    def between(self, earlier: int, later: int) -> tuple[int, list[float | None]]:
        """What happened between two samples.

        Returns:
            The driver's code, and, where that is success, percentages of the
            time in the order of ``_METRICS``, ``None`` for what it does not answer.
        """
        self._room.earlier, self._room.later = earlier, later
        code = self._ask(GPM_METRICS.function, ctypes.byref(self._room))
        if code != SUCCESS:
            return code, []
        return code, [
            metric.value if metric.code == SUCCESS else None
            for metric in self._room.metrics[: len(_METRICS)]
        ]


class GpmTrack:
    """The activity of one GPU, or of one GPU instance, from reading to reading.

    Attributes:
        code: What the driver answered last, when a sample was taken or compared.
    """

    def __init__(self, gpm: Gpm, handle: int, gpu_instance: int | None) -> None:
        self._gpm, self._handle, self._gpu_instance = gpm, handle, gpu_instance
        # An instance has no other utilisation; of a whole GPU it is one field of many.
        self._rests_ns = 5 * NS_PER_S if gpu_instance is not None else 60 * NS_PER_S
        self._ask_again_at_ns: int | None = 0
        self._samples: tuple[int, int] | None = None  # the earlier, and room for the next
        self._taken_at_ns: int | None = None  # the earlier, where it holds something
        self.code = SUCCESS

    def read(self, since_ns: int = 0) -> ActivitySample | None:
        """Activity from the last sample to now; one from before ``since_ns`` is not used.

        Returns:
            ``None`` if there was no sample to compare with, if it was taken
            less than 100 ms ago (it stays then), if the GPU does not say, or,
            of an instance, while another GPU is read.
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
        self.code = gpm.take(self._handle, self._gpu_instance, later)
        if self.code != SUCCESS:
            self._taken_at_ns = None  # it begins with a new sample: time up to it is not covered
            self._rest_if_refused()
            return None
        # The counters were copied somewhere within the call.
        taken_at_ns = began_ns + (gpm.monotonic_ns() - began_ns) // 2
        self._samples, self._taken_at_ns = (later, earlier), taken_at_ns
        if earlier_ns is None or earlier_ns < since_ns:
            return None
        self.code, percents = gpm.between(earlier, later)
        self._rest_if_refused()
        return self._sample(earlier_ns, taken_at_ns, percents)

    def close(self) -> None:
        """Free the samples. Who reads on borrows new ones."""
        if self._samples is not None:
            self._gpm.holders.discard(self)
            self._gpm.free(self._samples)
        self._samples = self._taken_at_ns = None

    def _borrow(self) -> tuple[int, int] | None:
        """Two samples, where the GPU has GPM and it may be asked for now."""
        if self._ask_again_at_ns is None or self._gpm.monotonic_ns() < self._ask_again_at_ns:
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
            self._ask_again_at_ns = None  # a board that has none will have none
        else:
            self._rest_if_refused()
        return self._samples

    def _rest_if_refused(self) -> None:
        """What is not supported or not permitted may be so only for a while."""
        if self.code in PERMANENT:
            self._ask_again_at_ns = self._gpm.monotonic_ns() + self._rests_ns
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
