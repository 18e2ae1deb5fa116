"""How large is a recording, and what do writing and replaying it cost?

    python -m benchmarks.bench_recording

An hour at one reading a second of boards of the fake libnvidia-ml.so.1, whose clock the benchmark
moves: every default field, GPM and a process list, in rhythms that differ by GPU. Once without a
training run, once with one that makes twenty steps a second, four tags each, with jitter. The peer
is a row of `nvidia-smi --format=csv -l 1` for each GPU, compressed with gzip: it has one
utilisation a second, and no phases.

Exits with 1 if a GPU needs more than 2 MB an hour without a training run, or if the memory of the
recorder grows.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import time
import tracemalloc
from array import array
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.recording_codec import RecordingHeader
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import (
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import BusySample, GpuSample, Tick
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.replay import replayed_report
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.recording import RecordingFile
from tests.builders.nvml import open_at_a_standstill
from tests.fakenvml.build import build_fake
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import PRESENT_DRIVER
from tests.fakenvml.in_process import shown_to_this_process

SECONDS: Final = 3_600
STEPS_A_SECOND: Final = 20
GOAL_MB: Final = 2.0
GROWTH_GOAL_BYTES: Final = 50_000
BEGAN_NS: Final = 5_000 * NS_PER_S
_INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
_TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


class HourFigures(NamedTuple):
    """What one hour came to."""

    gpus: int
    trains: bool
    recorded_bytes: int
    csv_bytes: int
    write_us: float
    replay_s: float


def readings(
    folder: Path, library: Path, *, gpus: int, trains: bool, seconds: int = SECONDS
) -> Iterator[Reading]:
    """So many ticks of boards that work in rhythms of their own."""
    random = Random(1)
    with shown_to_this_process(library, folder / "control", PRESENT_DRIVER, gpus=gpus) as fake:
        fake.stop_clock(BEGAN_NS)
        fake.control.origin_ns = BEGAN_NS
        for slot in range(gpus):
            fake.wave(slot, period_s=random.uniform(0.2, 5.0), busy_ratio=random.uniform(0.3, 1.0))
            fake.draw(slot, busy_watts=620.0, idle_watts=95.0)
            fake.run(slot, 4_000 + slot, memory_bytes=40 << 30)
        fake.scatter_windows(seed=1)
        source = open_at_a_standstill(fake)
        training = Training(random) if trains else None
        for second in range(seconds):
            yield moment_of(fake, source, training, second, random)
        source.close()


def hour(folder: Path, library: Path, *, gpus: int, trains: bool) -> HourFigures:
    """Record an hour and replay it."""
    path, spent_s = folder / f"{gpus}-{trains}.gpumon", 0.0
    rows: list[str] = []
    with RecordingWriter(path) as writer:
        for reading in readings(folder, library, gpus=gpus, trains=trains):
            began_s = time.process_time()
            writer.keep(reading, HEADER)
            spent_s += time.process_time() - began_s
            rows += [csv_row(gpu, reading.wall_time_s) for gpu in reading.tick.frames[0].gpus]
    began_s = time.process_time()
    with RecordingFile(path) as recording:
        report = replayed_report(recording).report
    replay_s = time.process_time() - began_s
    assert report.observed_ns > 0.99 * SECONDS * NS_PER_S
    csv_bytes = len(gzip.compress("\n".join(rows).encode()))
    write_us = spent_s / SECONDS * 1e6
    return HourFigures(gpus, trains, path.stat().st_size, csv_bytes, write_us, replay_s)


def growth_bytes(folder: Path, library: Path) -> int:
    """By how much the recorder's memory grows from the third minute to the twentieth."""
    held: list[int] = []
    tracemalloc.start()
    with RecordingWriter(folder / "growth.gpumon") as writer:
        reported = readings(folder, library, gpus=1, trains=True, seconds=1_200)
        for second, reading in enumerate(reported):
            writer.keep(reading, HEADER)
            if second in (182, 1_182):
                held.append(held_by_recorder())
    tracemalloc.stop()
    return held[1] - held[0]


HEADER: Final = RecordingHeader(
    version="0.1.0",
    source="nvml",
    simulated=True,
    boot_id="fake",
    started_wall_time_s=1_700_000_000.0,
    started_ns=BEGAN_NS,
    period_ns=NS_PER_S,
)


def held_by_recorder() -> int:
    """Bytes that code of the recorder holds."""
    where = [tracemalloc.Filter(inclusive=True, filename_pattern=f"*{name}*")
             for name in ("outlets/recording", "core/codecs/")]  # fmt: skip
    snapshot = tracemalloc.take_snapshot().filter_traces(where)
    return sum(statistic.size for statistic in snapshot.statistics("filename"))


def csv_row(gpu: GpuSample, wall_time_s: float) -> str:
    """What nvidia-smi would have logged of it."""
    busy = round(100 * (gpu.utilization_ratio or 0))
    stamp = datetime.fromtimestamp(wall_time_s, tz=timezone.utc).strftime("%Y/%m/%d %H:%M:%S.%f")
    return (
        f"{stamp[:-3]}, {gpu.device.index}, {busy} %, {(gpu.memory_used_bytes or 0) >> 20} MiB, "
        f"{gpu.power_watts or 0.0:.2f} W, {gpu.temperature_celsius or 0.0:.0f}"
    )


def moment_of(
    fake: FakeNvml, source: NvmlSource, training: Training | None, second: int, random: Random
) -> Reading:
    """One tick, as late as ticks are."""
    fake.advance(1.0 + random.uniform(-2e-4, 2e-4))
    now_ns = fake.now_ns()
    rings = RingsReading() if training is None else training.reading(now_ns)
    took_s = random.uniform(1e-4, 3e-4)
    frame = source.read()
    frame = frame._replace(gpus=tuple(restless(gpu, random) for gpu in frame.gpus))
    tick = Tick(now_ns, random.randrange(400_000), (frame,), 0, None, took_s)
    return Reading(tick, rings, 1_700_000_000.0 + second + took_s, took_s / 5)


def restless(gpu: GpuSample, random: Random) -> GpuSample:
    """With the noise of a real board, which the fake one has not: it would pack too well."""
    moved_ns = [random.randrange(-400, 400) * 1_000 for _ in gpu.busy[1:]] + [0] * bool(gpu.busy)
    ends_ns = [one.end_ns + by_ns for one, by_ns in zip(gpu.busy, moved_ns, strict=True)]
    starts_ns = [one.start_ns for one in gpu.busy[:1]] + ends_ns[:-1]
    busy = [
        BusySample(start_ns, end_ns, round(one.busy_ratio * random.uniform(0.95, 1.0), 2))
        for start_ns, end_ns, one in zip(starts_ns, ends_ns, gpu.busy, strict=True)
    ]
    return gpu._replace(
        busy=tuple(busy),
        utilization_ratio=busy[-1].busy_ratio if busy else None,
        power_watts=round((gpu.power_watts or 0.0) * random.uniform(0.95, 1.0), 3),
        temperature_celsius=float(60 + random.randrange(3)),
        memory_used_bytes=(gpu.memory_used_bytes or 0) + random.randrange(4) * 2**21,
    )


class Training:
    """A ring with four records a step."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._steps = 0
        self._phase_ns = {TrainingPhase.INPUT_WAIT: 0, TrainingPhase.TRAIN_STEP: 0}
        self._facts = RunFacts(
            run="resnet", job="job", pid=4_000, framework="keras/jax", boot_id="fake",
            started_ns=BEGAN_NS, gpus=("0",), loader={"workers": 4},
        )  # fmt: skip

    def reading(self, now_ns: int) -> RingsReading:
        """What it tagged in the last second."""
        at_ns, part_ns = now_ns - NS_PER_S, NS_PER_S // STEPS_A_SECOND // 4
        rows: list[tuple[int, int, int, int]] = []
        for _ in range(STEPS_A_SECOND):
            self._steps += 1
            for kind, phase, value in (
                (RingKind.ENTER, _INPUT_WAIT, 0), (RingKind.ENTER, _TRAIN_STEP, 0),
                (RingKind.STEP, 0, self._steps), (RingKind.SAMPLES, 0, self._steps * 512),
            ):  # fmt: skip
                at_ns += part_ns - self._random.randrange(40_000)
                rows.append((kind, phase, at_ns, value))
        for spent_in in self._phase_ns:
            self._phase_ns[spent_in] += NS_PER_S // 2 - self._random.randrange(10_000)
        kinds, phases, stamps_ns, values = zip(*rows, strict=True)
        return RingsReading(rings=(RingReading(
            key="/run/gpumon/phases/4000.ring#1", facts=self._facts, alive=True, host_pid=4_000,
            owner_uid=1_000, read_at_ns=now_ns + 90_000, ended_ns=None,
            events=RingRecords(
                bytes(kinds), bytes(phases), list(stamps_ns), array("Q", values)
            ),
            lost_events=0, phase_ns=dict(self._phase_ns), steps=self._steps,
            samples=self._steps * 512, epoch=0,
        ),))  # fmt: skip


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    print(f"{SECONDS} ticks of a second each; gpumon's recording, and gzipped CSV of nvidia-smi\n")
    print("GPUs training   MB a GPU-hour   as CSV   write a tick   replay of it")
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_fake(folder)
        for gpus, trains in ((1, False), (8, False), (1, True)):
            reported = hour(folder, library, gpus=gpus, trains=trains)
            size_mb, csv_mb = reported.recorded_bytes / gpus / 1e6, reported.csv_bytes / gpus / 1e6
            print(
                f"{gpus:>4} {'20 steps/s' if trains else 'none':<10} {size_mb:>13.2f} "
                f"{csv_mb:>8.2f} {reported.write_us:>11.0f} us {reported.replay_s:>12.2f} s"
            )
            missed |= not trains and size_mb > GOAL_MB
        growth = growth_bytes(folder, library)
    print(f"\nmemory of the recorder after 3 and 20 minutes: {growth:+,} bytes")
    return int(missed or growth > GROWTH_GOAL_BYTES)


if __name__ == "__main__":
    sys.exit(main())
