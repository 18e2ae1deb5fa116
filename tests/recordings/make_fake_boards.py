"""Creates ``fake_boards.gpumon``: a minute of two boards of the fake driver, on a simulated clock.

    python -m tests.recordings.make_fake_boards [FILE]

GPU 0 works every other second, and its run waits for input in between; GPU 1 is always busy. The
phases are written by hand, from the wave that the fake driver computes. Needs a C compiler.
"""

from __future__ import annotations

import sys
import tempfile
from array import array
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.recording_codec import RecordingHeader
from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import (
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import Tick
from gpumon.outlets.recording import RecordingWriter
from gpumon.sources.nvml.source import NvmlSource
from tests.builders.nvml import open_at_a_standstill
from tests.fakenvml.build import build_fake
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.generations import PRESENT_DRIVER
from tests.fakenvml.in_process import shown_to_this_process

SECONDS: Final = 60
BEGAN_NS: Final = 5_000 * NS_PER_S
BEGAN_WALL_S: Final = 1_700_000_000.0
NOTE: Final = "two boards of the tests' fake driver, not of any hardware; phases written by hand"
PID: Final = 4_242
_WAIT: Final = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
_STEP: Final = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


def record_fake_boards(fake: FakeNvml, path: Path) -> None:
    """Record them, a tick a second of the driver's clock; takes no time of its own."""
    fake.stop_clock(BEGAN_NS)
    fake.control.origin_ns = BEGAN_NS
    fake.wave(0, period_s=2.0, busy_ratio=0.5)
    fake.wave(1, period_s=2.0, busy_ratio=1.0)
    fake.draw(0, busy_watts=620.0, idle_watts=95.0)
    fake.run(0, PID, memory_bytes=40 << 30, sm=48)
    fake.run(1, PID + 1, memory_bytes=40 << 30, sm=97)
    source = open_at_a_standstill(fake)
    try:
        with RecordingWriter(path, replaces=True) as writer:
            for second in range(SECONDS + 1):
                writer.keep(_reading(fake, source, second), _HEADER)
                fake.advance(1.0)
    finally:
        source.close()


_HEADER: Final = RecordingHeader(
    version="0.1.0",
    source="nvml",
    simulated=True,
    boot_id="fake-boards",
    note=NOTE,
    started_wall_time_s=BEGAN_WALL_S,
    started_ns=BEGAN_NS,
    period_ns=NS_PER_S,
)


def _reading(fake: FakeNvml, source: NvmlSource, second: int) -> Reading:
    frame = source.read()
    now_ns = fake.now_ns()
    tick = Tick(now_ns, 0, (frame,), 0, None, 0.0)
    return Reading(tick, RingsReading(rings=(_ring(second, now_ns),)), BEGAN_WALL_S + second)


def _ring(second: int, now_ns: int) -> RingReading:
    """The tags of a run on GPU 0 that computes in even seconds."""
    steps = (second + 1) // 2
    phases = [_STEP if second % 2 == 0 else _WAIT]
    kinds = bytes([RingKind.ENTER, RingKind.STEP][: 1 + second % 2])
    events = RingRecords(
        kinds,
        bytes([*phases, 0][: len(kinds)]),
        [now_ns] * len(kinds),
        array("Q", [0, steps][: len(kinds)]),
    )
    spent = {
        PHASES[_WAIT]: second // 2 * NS_PER_S,
        PHASES[_STEP]: (second + 1) // 2 * NS_PER_S,
    }
    return RingReading(
        key="/run/gpumon/phases/4242.ring#1",
        facts=RunFacts(
            run="resnet", job="resnet", pid=PID, framework="keras/jax", boot_id="fake-boards",
            started_ns=BEGAN_NS, gpus=("0",), loader={"workers": 0},
        ),
        alive=True, host_pid=PID, owner_uid=1000, read_at_ns=now_ns, ended_ns=None, events=events,
        lost_events=0, phase_ns=spent, steps=steps, samples=steps * 512, epoch=0,
    )  # fmt: skip


def main() -> int:
    """Write the file beside this one, or to the given path."""
    path = Path(
        sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("fake_boards.gpumon")
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_fake(folder)
        with shown_to_this_process(library, folder / "control", PRESENT_DRIVER) as fake:
            record_fake_boards(fake, path)
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
