"""Readings of a source and rings, and recordings of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.recording_codec import HEAD_BYTES, RecordingHeader, packed_length
from gpumon.core.phase import PHASES, TrainingPhase
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import (
    ActivitySample,
    BusySample,
    Device,
    FieldFault,
    Frame,
    GpuDetails,
    GpuSample,
    ProcessSample,
    Tick,
)
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.monitor import MonitorFacts
from tests.builders.monitor import ring_reading

BOOT_ID = "another-boot"
BEGAN_NS = 7_000 * NS_PER_S
BEGAN_WALL_S = 1_700_000_000.25
SOURCE = "nvml"
UUIDS = ("GPU-aaaa", "GPU-bbbb")
DEVICES = tuple(
    Device(uuid=uuid, index=index, name="NVIDIA H100", driver_version="580.95.05")
    for index, uuid in enumerate(UUIDS)
)
WAIT, STEP, SAVE = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.CHECKPOINT


def header(*, period_s: float = 1.0, simulated: bool = False, note: str = "") -> RecordingHeader:
    return RecordingHeader(
        version="0.1.0",
        source=SOURCE,
        simulated=simulated,
        boot_id=BOOT_ID,
        host="elsewhere",
        note=note,
        started_wall_time_s=BEGAN_WALL_S,
        started_ns=BEGAN_NS,
        period_ns=round(period_s * NS_PER_S),
    )


def facts() -> MonitorFacts:
    """The facts of the monitor during the recording."""
    return MonitorFacts(
        source=SOURCE,
        source_kind=SOURCE,
        simulated=False,
        period_ns=NS_PER_S,
        boot_id=BOOT_ID,
        started_wall_time_s=BEGAN_WALL_S,
    )


def reading(
    second: float,
    gpus: Sequence[GpuSample] = (),
    rings: RingsReading | None = None,
    **tick: object,
) -> Reading:
    """A tick at this second."""
    at_ns = BEGAN_NS + round(second * NS_PER_S)
    reported: dict[str, object] = {
        "late_ns": 1_234,
        "frames": (Frame(taken_at_ns=at_ns - 5_000, gpus=tuple(gpus)),),
        "missed_count": 0,
        "error": None,
        "duration_seconds": 0.000_123,
        **tick,
    }
    return Reading(
        Tick(at_ns=at_ns, **reported),  # type: ignore[arg-type]
        RingsReading() if rings is None else rings,
        BEGAN_WALL_S + second + 0.001,
        0.000_045,
    )


def plain_readings(count: int) -> list[Reading]:
    """One GPU, one sample a second."""
    reported = []
    for second in range(1, count + 1):
        end_ns = BEGAN_NS + second * NS_PER_S
        busy = (BusySample(end_ns - NS_PER_S, end_ns, 0.5),)
        reported.append(reading(second, [GpuSample(device=DEVICES[0], busy=busy)]))
    return reported


def full_sample(second: int, random: Random) -> GpuSample:
    """A sample with every field."""
    end_ns = BEGAN_NS + second * NS_PER_S
    return GpuSample(
        device=DEVICES[0],
        busy=(BusySample(end_ns - NS_PER_S, end_ns, random.random()),),
        utilization_ratio=random.random(),
        memory_used_bytes=random.randrange(2**37),
        power_watts=700.0 * random.random(),
        temperature_celsius=float(random.randrange(90)),
        sm_clock_hertz=1.98e9,
        energy_joules=1e6 * random.random(),
        processes=(ProcessSample(42, 2**34, 0.75, "python3", "ada", 1000), ProcessSample(43, None)),
        processes_at_ns=end_ns,
        power_over_ns=NS_PER_S,
        power_now_watts=650.0 * random.random(),
        power_now_at_ns=end_ns,
        details=GpuDetails(end_ns, 700.0, 1.98e9, 2.6e9, 0, ("sw_power_cap",), 1, 0, True, 0.3),
        activity=ActivitySample(end_ns - NS_PER_S, end_ns, 0.9, 0.5, 0.3, 0.25, 0.125),
        xid_errors=((31, 1), (79, 2)),
        faults=(FieldFault("power", "no answer", BEGAN_NS),),
    )


def training_readings(seed: int, seconds: int = 90) -> Iterator[Reading]:
    """Two GPUs and two training runs that wait and save, drawn from a seed.

    With ticks without a frame, late samples, lost records, a run that ends and a ring that goes.
    """
    random = Random(seed)
    rings = [_Training(key, random) for key in ("/run/gpumon/one#1", "/run/gpumon/two#2")]
    sampled_ns = BEGAN_NS
    for second in range(1, seconds + 1):
        end_ns = BEGAN_NS + second * NS_PER_S
        level = 0.97 if random.random() < 0.5 else random.choice([0.0, 0.02, 0.4])
        gpus = []
        for device in DEVICES:
            half_ns = (sampled_ns + end_ns) // 2
            busy = (BusySample(sampled_ns, half_ns, level), BusySample(half_ns, end_ns, level / 2))
            pid = ProcessSample(4_000 + device.index, 2**30)
            gpus.append(GpuSample(device, busy, level, power_watts=99.5, processes=(pid,)))
        listed = [ring for ring in rings if second < seconds - 9 or ring is rings[0]]
        rings_reading = RingsReading(
            rings=tuple(ring.reading(second, ended=second > seconds - 20) for ring in listed),
            rejected=second // 30,
            message="three.ring: of another boot" if second >= 30 else None,
        )
        if random.random() < 0.05:
            yield reading(
                second, rings=rings_reading, frames=(), missed_count=1, error="no answer yet"
            )
        else:
            sampled_ns = end_ns
            yield reading(second, gpus, rings_reading)


class _Training:
    def __init__(self, key: str, random: Random) -> None:
        self._random = random
        self._steps = self._samples = 0
        self._phase_ns: dict[TrainingPhase, int] = {}
        number = int(key[-1])
        self._facts = RunFacts(
            run=f"resnet-{number}", job="job", rank=number - 1, world_size=2, pid=3_999 + number,
            framework="keras/jax", boot_id=BOOT_ID, started_ns=BEGAN_NS, gpus=(str(number - 1),),
            loader={"workers": 4, "kind": "DataLoader"}, callback_ns={"Saver": 5},
        )  # fmt: skip
        self._key = key

    def reading(self, second: int, *, ended: bool) -> RingReading:
        at_ns = BEGAN_NS + (second - 1) * NS_PER_S
        events: list[RingEvent] = []
        if not ended:
            while at_ns < BEGAN_NS + second * NS_PER_S - 400_000_000:
                waits_ns = self._random.randrange(10_000_000, 300_000_000)
                self._steps, self._samples = self._steps + 1, self._samples + 512
                events += [
                    RingEvent(RingKind.ENTER, at_ns, self._random.choice([WAIT, SAVE]), 0),
                    RingEvent(RingKind.ENTER, at_ns + waits_ns, STEP, 0),
                    RingEvent(RingKind.STEP, at_ns + 2 * waits_ns, PHASES[0], self._steps),
                ]
                self._phase_ns[WAIT] = self._phase_ns.get(WAIT, 0) + waits_ns
                at_ns += 2 * waits_ns
        return ring_reading(
            self._facts, key=self._key, alive=not ended, owner_uid=1000,
            read_at_ns=BEGAN_NS + second * NS_PER_S + 999,
            ended_ns=None if not ended else BEGAN_NS + second * NS_PER_S,
            events=RingRecords.of(events),
            lost_events=self._random.choice([0, 0, 0, 3]), phase_ns=dict(self._phase_ns),
            steps=self._steps, samples=self._samples, epoch=second // 30,
        )  # fmt: skip


def blocks_of(raw: bytes) -> list[bytes]:
    """The members of the file."""
    blocks = []
    while raw:
        length = packed_length(raw[:HEAD_BYTES])
        assert length is not None
        blocks.append(raw[:length])
        raw = raw[length:]
    return blocks


def record(path: Path, readings: Sequence[Reading], *, why: str | None = "ended") -> Path:
    """Write readings into a file; ``why=None``: as a killed process leaves it."""
    writer = RecordingWriter(path)
    for one in readings:
        writer.keep(one, header())
    if why is not None:
        writer.close(why)
    return path
