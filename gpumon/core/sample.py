"""What GPUs said in one tick. Pure data: no I/O, no clock.

All times are CLOCK_MONOTONIC nanoseconds of one boot of one host (or, for a
finished log, nanoseconds on a clock of the log's own). Durations are kept as
whole nanoseconds, so that sums close exactly. ``None`` always means *no
answer*, never zero.

Named tuples, because many are made in each tick, and a frozen dataclass takes
several times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.core.clock import seconds
from gpumon.core.host.evidence import NOT_LOOKED, HostReading
from gpumon.core.ring_format.events import RingsReading
from gpumon.core.wording import gpu_label
from gpumon.errors import InvalidSampleError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or one MIG instance of a GPU, known by its UUID.

    Attributes:
        uuid: NVML UUID such as ``"GPU-8f1c2a"``. Survives a reboot and a
            change of order; the index does not.
        index: NVML index at the time of the inventory; of a MIG instance, its parent's.
        pci_bus_id: Such as ``"00000000:3B:00.0"``.
        driver_version: Such as ``"580.95.05"``.
        mig_enabled: Whether the GPU is cut into MIG instances: then it is they
            that work, and the GPU itself has no utilisation.
        parent_uuid: UUID of the GPU that this MIG instance is a part of;
            ``None`` for a GPU.
        mig_index: Which of its parent's instances, counted from 0; ``None``
            for a GPU.
        gpu_instance: Number of the GPU instance that a MIG instance lies in.
        compute_instance: Its number in that: ``MIG-<uuid of the GPU>/<gpu
            instance>/<compute instance>`` is how older drivers call it.
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
        """How people and tools number it: ``"0"``, and ``"0:1"`` for a MIG instance."""
        return gpu_label(self.index, self.mig_index)

    @property
    def place(self) -> tuple[int, int]:
        """Sorts GPUs by index, each before its MIG instances."""
        return self.index, -1 if self.mig_index is None else self.mig_index


class FieldFault(NamedTuple):
    """One field that fails, while the GPU itself is there.

    Attributes:
        field: What users call it, such as ``"temperature"``.
        reason: What the driver does instead of answering, as the end of a sentence.
        since_ns: CLOCK_MONOTONIC of the first reading that failed.
    """

    field: str
    reason: str
    since_ns: int


def fault_sentence(device: Device, fault: FieldFault) -> str:
    """That a field fails.

    >>> fault_sentence(Device(uuid="GPU-0", index=0), FieldFault("power_limit", "no answer", 0))
    'GPU 0: reading its power limit fails: no answer'
    """
    return f"GPU {device.label}: reading its {_words(fault)} fails: {fault.reason}"


def mended_sentence(device: Device, fault: FieldFault, until_ns: int) -> str:
    """That it does not any more.

    >>> mended_sentence(Device(uuid="GPU-0", index=0), FieldFault("memory", "", 0), 20 * 10**9)
    'GPU 0: reading its memory works again, after 20 s'
    """
    lasted_s = seconds(until_ns - fault.since_ns)
    return f"GPU {device.label}: reading its {_words(fault)} works again, after {lasted_s:.0f} s"


def _words(fault: FieldFault) -> str:
    return fault.field.replace("_", " ")


class BusySample(NamedTuple):
    """One utilisation sample of one GPU: how busy it was over a stretch of time.

    NVML looks back over its last sample period, so a sample speaks for the
    time that *ends* at its stamp.

    Attributes:
        end_ns: Where it ends: the sample's stamp.
        busy_ratio: Share of it, 0 to 1, in which at least one kernel ran
            (NVML ``utilization.gpu`` / 100).
    """

    start_ns: int
    end_ns: int
    busy_ratio: float

    def may_follow(self, end_ns: int) -> bool:
        """Whether it can be taken after all up to ``end_ns``: no time twice, and no nonsense.

        >>> BusySample(5, 9, 0.5).may_follow(5), BusySample(4, 9, 0.5).may_follow(5)
        (True, False)
        """
        return end_ns <= self.start_ns < self.end_ns and 0.0 <= self.busy_ratio <= 1.0


_LONGEST_SAMPLE_NS: Final = 1 << 53
"""A float holds no longer time to the nanosecond: its busy part might come out as more than all."""


def checked_busy_sample(start_ns: int, end_ns: int, busy_ratio: float) -> BusySample:
    """A sample from a source that may say anything.

    Raises:
        InvalidSampleError: The ratio is outside 0 to 1 or not a number, or
            the sample spans no time, or more than a share of it can be told of.
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
        pid: Process id as this host sees it.
        memory_used_bytes: Device memory the process holds, in bytes.
        sm_ratio: Share of the time since shares were read before, 0 to 1, in
            which the process kept streaming multiprocessors busy.
        name: Its name, only where names were asked for.
        user: Who runs it, only where names were asked for.
        uid: The number of who runs it; ``None``: unknown, or it works for others.
        serves_others: Whether it works for processes of others, as an MPS server does.
        is_hidden: Whether it is unknown because ``/proc`` hides processes of other users.
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
    """How much of a GPU worked while it was busy, over a stretch of time (NVML's GPM, Hopper on).

    Attributes:
        graphics_ratio: Share of the time in which any engine computed, 0 to 1.
        sm_active_ratio: Share of the streaming multiprocessors that had a
            warp, over the time, 0 to 1.
        sm_occupancy_ratio: Warps resident, of those that could be, 0 to 1.
        tensor_active_ratio: Share of the time the tensor cores worked, 0 to 1.
        memory_bandwidth_ratio: DRAM bandwidth in use, of the most there is, 0 to 1.
    """

    start_ns: int
    end_ns: int
    graphics_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_active_ratio: float | None = None
    memory_bandwidth_ratio: float | None = None


class GpuDetails(NamedTuple):
    """What a board says every few seconds. The same object comes until it is read again.

    Attributes:
        read_at_ns: CLOCK_MONOTONIC of the reading.
        power_limit_watts: The limit that is enforced, in watts.
        sm_clock_max_hertz: The highest clock of the streaming multiprocessors.
        memory_clock_hertz: Clock of the device memory.
        performance_state: P-state, 0 (fastest) to 15.
        throttle_reasons: Why the clocks are held down now, by NVML's names in
            ``core/device/driver_codes``; empty: they are not.
        ecc_corrected_errors: Corrected memory errors since the driver was loaded.
        ecc_uncorrected_errors: Uncorrected ones.
        persistence_mode: Whether the driver stays loaded without a client.
        fan_speed_ratio: Fan speed of that at which the board is as loud as it
            may be; it can be above 1 (opt-in).
        encoder_ratio: Share of the time the video encoder worked (opt-in).
        decoder_ratio: The same of the decoder (opt-in).
        pcie_transmitted_bytes_per_second: From the GPU to the host (opt-in).
        pcie_received_bytes_per_second: From the host to the GPU (opt-in).
        nvlink_transmitted_bytes_per_second: Over all NVLinks, since the reading before (opt-in).
        nvlink_received_bytes_per_second: The same, the other way (opt-in).
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
    """What one GPU reported in one tick.

    Attributes:
        device: Who spoke.
        busy: Utilisation samples that are new since the tick before, oldest
            first, disjoint. Empty: the time was not observed.
        utilization_ratio: The latest utilisation, 0 to 1. This and the other
            values of now are ``None`` where nobody could read them for three periods.
        memory_used_bytes: Device memory in use, in bytes.
        power_watts: Board power draw, in watts: the mean since the tick
            before, where the driver keeps samples of it and that tick was at
            most 3 s ago; else what the driver reports now.
        temperature_celsius: Core temperature.
        sm_clock_hertz: Clock of the streaming multiprocessors.
        energy_joules: Energy in joules since the driver was loaded; it goes
            on where a reset sets the board's own counter back.
        processes: Who holds memory on the GPU; ``None`` where the list is
            not to be had, empty where nobody does.
        error: Why the GPU could not be read in this tick, as a sentence;
            ``None`` where it could.
        details: What it says every few seconds; ``None`` before the first
            reading, and of sources that do not know.
        activity: How much of it worked, over the newest stretch that GPM
            covers; the same object until there is a newer one.
        xid_errors: How many errors of each XID the driver reported since the
            source was opened, as pairs of XID and count, by XID.
        faults: Its fields that fail now. A field that the device does not
            support fails not: it has no answer.
        processes_at_ns: CLOCK_MONOTONIC just before ``processes`` was read;
            ``None``: with this sample.
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


class Frame(NamedTuple):
    """All that a source said in one tick.

    Attributes:
        taken_at_ns: CLOCK_MONOTONIC when the read finished.
        gpus: One sample for each GPU the source knows, in index order.
        rejected: Values the source refused in this tick because no device
            can have meant them (over 100 %, not a number, time running back).
        call_seconds: Cumulative seconds spent inside each driver function.
        trouble: What its user should know although it was read, as a
            sentence; ``None``: nothing.
        call_counts: How often each driver function was called.
        call_errors: How often each driver function answered with an error, as
            function, NVML's code and count.
    """

    taken_at_ns: int
    gpus: tuple[GpuSample, ...] = ()
    rejected: int = 0
    call_seconds: tuple[tuple[str, float], ...] = ()
    trouble: str | None = None
    call_counts: tuple[tuple[str, int], ...] = ()
    call_errors: tuple[tuple[str, int, int], ...] = ()


class Tick(NamedTuple):
    """What one tick brought.

    Attributes:
        late_ns: By how much it was later than its deadline.
        frames: Frames that arrived: normally one; none while the source
            hangs; two when a late one arrives beside a fresh one.
        missed_count: Deadlines for which no frame was there in time, those
            skipped because a tick before took too long included.
        error: Why the source cannot be read; ``None`` where it can.
        duration_seconds: How long the newest read took.
    """

    at_ns: int
    late_ns: int
    frames: tuple[Frame, ...]
    missed_count: int
    error: str | None
    duration_seconds: float


class Moment(NamedTuple):
    """One tick and all that was read beside it: what a monitor advances by.

    Attributes:
        rings: What the phase rings said after it.
        rings_seconds: How long reading the rings took.
        host: What the machine showed of the trainings that waited.
    """

    tick: Tick
    rings: RingsReading
    wall_time_s: float
    rings_seconds: float = 0.0
    host: HostReading = NOT_LOOKED
