"""What was read in one tick.

All times are CLOCK_MONOTONIC nanoseconds of one boot of one host, or of a finished log's own
clock; durations are whole nanoseconds, so that sums close exactly. ``None`` always means *no
answer*, never zero.

Most types are named tuples: many are created in each tick, and a frozen dataclass takes several
times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.clock import seconds
from gpumon.core.wording import gpu_label
from gpumon.errors import InvalidSampleError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or one MIG instance, identified by its UUID.

    Attributes:
        uuid: NVML UUID such as ``"GPU-8f1c2a"``. Survives a reboot and a
            change of order; the index does not.
        index: NVML index at the time of the inventory; a MIG instance has its parent's.
        pci_bus_id: Such as ``"00000000:3B:00.0"``.
        driver_version: Such as ``"580.95.05"``.
        mig_enabled: Whether the GPU is MIG-partitioned: then only its instances have
            utilisation.
        parent_uuid: The GPU of a MIG instance; ``None`` for a GPU.
        mig_index: Number of a MIG instance in its parent; ``None`` for a GPU.
        gpu_instance: Number of the GPU instance that contains a MIG instance.
        compute_instance: Its number in that. Older drivers call the instance
            ``MIG-<uuid of the GPU>/<gpu instance>/<compute instance>``.
    """

    uuid: str
    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    driver_version: str | None = None
    memory_capacity_bytes: int | None = None
    mig_enabled: bool = False
    parent_uuid: str | None = None
    mig_index: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None

    @property
    def label(self) -> str:
        """``"0"``, or ``"0:1"`` for a MIG instance."""
        return gpu_label(self.index, self.mig_index)

    @property
    def sort_key(self) -> tuple[int, int]:
        """By index, a GPU before its MIG instances."""
        return self.index, -1 if self.mig_index is None else self.mig_index


class FieldFault(NamedTuple):
    """One field that fails while the GPU itself answers.

    Attributes:
        field: Such as ``"temperature"``.
        reason: What the driver does instead, as the end of a sentence.
        since_ns: CLOCK_MONOTONIC of the first failure.
    """

    field: str
    reason: str
    since_ns: int


def fault_sentence(device: Device, fault: FieldFault) -> str:
    """The message when a field starts to fail.

    >>> fault_sentence(Device(uuid="GPU-0", index=0), FieldFault("power_limit", "no answer", 0))
    'GPU 0: reading its power limit fails: no answer'
    """
    return f"GPU {device.label}: reading its {_words(fault)} fails: {fault.reason}"


def recovery_sentence(device: Device, fault: FieldFault, until_ns: int) -> str:
    """The message when it works again.

    >>> recovery_sentence(Device(uuid="GPU-0", index=0), FieldFault("memory", "", 0), 20 * 10**9)
    'GPU 0: reading its memory works again, after 20 s'
    """
    lasted_s = seconds(until_ns - fault.since_ns)
    return f"GPU {device.label}: reading its {_words(fault)} works again, after {lasted_s:.0f} s"


def _words(fault: FieldFault) -> str:
    return fault.field.replace("_", " ")


class BusySample(NamedTuple):
    """One utilisation sample of one GPU.

    NVML averages over its last sample period, so a sample covers the time
    that *ends* at its timestamp.

    Attributes:
        end_ns: The sample's timestamp.
        busy_ratio: Share of the time, 0 to 1, in which at least one kernel ran
            (NVML ``utilization.gpu`` / 100).
    """

    start_ns: int
    end_ns: int
    busy_ratio: float

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def busy_ns(self) -> int:
        """Busy part of it, to the nanosecond."""
        return round((self.end_ns - self.start_ns) * self.busy_ratio)

    @property
    def idle_ns(self) -> int:
        """The rest of it, so that both add up to its length."""
        return self.end_ns - self.start_ns - self.busy_ns

    def may_follow(self, end_ns: int) -> bool:
        """Whether it is valid and starts at or after ``end_ns``.

        >>> BusySample(5, 9, 0.5).may_follow(5), BusySample(4, 9, 0.5).may_follow(5)
        (True, False)
        """
        return end_ns <= self.start_ns < self.end_ns and 0.0 <= self.busy_ratio <= 1.0


_LONGEST_SAMPLE_NS: Final = 1 << 53
"""The longest time that a float holds to the nanosecond."""


def checked_busy_sample(start_ns: int, end_ns: int, busy_ratio: float) -> BusySample:
    """A sample with values from outside.

    Raises:
        InvalidSampleError: The ratio is outside 0 to 1 or not a number, or
            the length is out of range.
    """
    if not 0.0 <= busy_ratio <= 1.0:
        raise InvalidSampleError(
            f"busy_ratio must be within 0..1, got {busy_ratio!r}; "
            "divide NVML percent by 100 at the source"
        )
    if end_ns <= start_ns:
        raise InvalidSampleError(f"a sample must span time, got {start_ns!r}..{end_ns!r} ns")
    if end_ns - start_ns > _LONGEST_SAMPLE_NS:
        raise InvalidSampleError(f"a sample of {end_ns - start_ns} ns is longer than 104 days")
    return BusySample(start_ns, end_ns, busy_ratio)


class ProcessSample(NamedTuple):
    """One process that holds memory on a GPU.

    Attributes:
        sm_ratio: Share of the time since the previous reading, 0 to 1, in
            which the process kept streaming multiprocessors busy.
        name: Only if names are enabled; so is ``user``.
        uid: Its owner; ``None``: unknown, or it works for others.
        is_hidden: Whether its owner is unknown because ``/proc`` hides other users' processes.
        serves_others: Whether it works for other users' processes, as an MPS server does.
    """

    pid: int
    memory_used_bytes: int | None
    sm_ratio: float | None = None
    name: str | None = None
    user: str | None = None
    uid: int | None = None
    is_hidden: bool = False
    serves_others: bool = False


class ActivitySample(NamedTuple):
    """Activity of a GPU over a stretch of time (NVML's GPM, Hopper and later), 0 to 1.

    Attributes:
        graphics_ratio: Share of the time in which any engine computed.
        sm_active_ratio: Mean share of the streaming multiprocessors that had a warp.
        sm_occupancy_ratio: Resident warps / most possible.
        tensor_active_ratio: Share of the time in which the tensor cores worked.
        memory_bandwidth_ratio: DRAM bandwidth in use / most possible.
    """

    start_ns: int
    end_ns: int
    graphics_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_active_ratio: float | None = None
    memory_bandwidth_ratio: float | None = None


class GpuDetails(NamedTuple):
    """What is read of a board every few seconds; the same object in between.

    Attributes:
        read_at_ns: CLOCK_MONOTONIC of the reading.
        power_limit_watts: The enforced limit.
        performance_state: P-state, 0 (fastest) to 15.
        throttle_reasons: Why the clocks are reduced now, by NVML's names in
            ``core/device/driver_codes``; empty: they are not.
        ecc_corrected_errors: Memory errors since the driver was loaded; so are uncorrected ones.
        persistence_mode: Whether the driver stays loaded without a client.
        fan_speed_ratio: Fan speed / the speed of the permitted noise level; may
            exceed 1 (opt-in, as all below).
        encoder_ratio: Share of the time in which the video encoder worked.
        pcie_transmitted_bytes_per_second: From the GPU to the host.
        nvlink_transmitted_bytes_per_second: Over all NVLinks, since the previous reading.
    """

    read_at_ns: int
    power_limit_watts: float | None = None
    sm_clock_max_hertz: float | None = None
    memory_clock_hertz: float | None = None
    performance_state: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    ecc_corrected_errors: int | None = None
    ecc_uncorrected_errors: int | None = None
    persistence_mode: bool | None = None
    fan_speed_ratio: float | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None
    pcie_transmitted_bytes_per_second: float | None = None
    pcie_received_bytes_per_second: float | None = None
    nvlink_transmitted_bytes_per_second: float | None = None
    nvlink_received_bytes_per_second: float | None = None


class GpuSample(NamedTuple):
    """What was read of one GPU in one tick.

    Attributes:
        busy: Utilisation samples since the previous tick, oldest first,
            disjoint. Empty: the time was not observed.
        utilization_ratio: The latest utilisation, 0 to 1. It and the other present
            values are ``None`` after three periods without an answer.
        power_watts: Mean power draw before the newest of ``busy``: of the last second where
            the driver reports that, else since the drain before, else the present draw.
        energy_joules: Energy since the driver was loaded; it continues
            where a reset clears the board's counter.
        processes: Processes that hold memory on the GPU; ``None``: no list.
        error: Why the GPU could not be read in this tick, as a sentence.
        details: ``None`` before the first reading, and from sources without details.
        activity: Of the newest stretch that GPM covers; the same object
            until there is a newer one.
        xid_errors: Errors since the source was opened, as (XID, count), by XID.
        faults: Fields that fail now. A field that the device does not
            support is ``None``, not a fault.
        processes_at_ns: CLOCK_MONOTONIC just before ``processes`` was read;
            ``None``: with this sample.
        power_over_ns: The time that ``power_watts`` is a mean of; ``None``: that since the
            drain before.
        power_now_watts: The draw at one moment; ``None``: not read.
        power_now_at_ns: CLOCK_MONOTONIC of that moment.
    """

    device: Device
    busy: tuple[BusySample, ...] = ()
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hertz: float | None = None
    energy_joules: float | None = None
    processes: tuple[ProcessSample, ...] | None = None
    error: str | None = None
    details: GpuDetails | None = None
    activity: ActivitySample | None = None
    xid_errors: tuple[tuple[int, int], ...] = ()
    faults: tuple[FieldFault, ...] = ()
    processes_at_ns: int | None = None
    power_over_ns: int | None = None
    power_now_watts: float | None = None
    power_now_at_ns: int | None = None


class Frame(NamedTuple):
    """What a source read in one tick.

    Attributes:
        taken_at_ns: CLOCK_MONOTONIC when the read finished.
        gpus: One sample for each known GPU, in index order.
        rejected: Impossible values that the source refused in this tick (over
            100 %, not a number, time running backwards).
        call_seconds: Cumulative seconds spent in each driver function.
        trouble: A warning for the user although the read succeeded, as a sentence.
        call_counts: Cumulative calls of each driver function.
        call_errors: Cumulative errors, as (function, NVML code, count).
        is_quiet: Whether nothing was read: the samples are those of the frame before, without
            ``busy``.
        present_ratios: Present utilisation, 0 to 1, by UUID, of GPUs with a process, where it was
            asked for.
    """

    taken_at_ns: int
    gpus: tuple[GpuSample, ...] = ()
    rejected: int = 0
    call_seconds: tuple[tuple[str, float], ...] = ()
    trouble: str | None = None
    call_counts: tuple[tuple[str, int], ...] = ()
    call_errors: tuple[tuple[str, int, int], ...] = ()
    is_quiet: bool = False
    present_ratios: tuple[tuple[str, float], ...] = ()


class Tick(NamedTuple):
    """One tick of the sampler.

    Attributes:
        late_ns: How long after its deadline it was.
        frames: Normally one; none while the source hangs; two when a late
            one arrives with a new one.
        missed_count: Deadlines without a frame in time, including those
            skipped after a long tick.
        error: Why the source cannot be read; ``None``: it can.
    """

    at_ns: int
    late_ns: int
    frames: tuple[Frame, ...]
    missed_count: int
    error: str | None
    duration_seconds: float
