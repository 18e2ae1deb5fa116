"""What a run is warned of about its GPUs: one sentence, once, and only what is true."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.runtime_paths import STATE_FILE
from gpumon.outlets.state_file import StateFile
from tests.builders.state import BOOT_ID, S, monitor_state, run
from trainer_hooks.ring.daemon_state import GpuWarnings

SILENT = RunFacts(run="resnet", job="slurm-4711.0", pid=4242, boot_id=BOOT_ID, started_ns=0)
FROM_NS = 1_000_000_000_000


class World:
    """A run of two minutes, and a daemon that has written its state once."""

    def __init__(self, folder: Path, warned: pytest.WarningsRecorder) -> None:
        self.folder, self._warned = folder, warned
        self.now_ns = FROM_NS
        self.doubts = GpuWarnings(now_ns=lambda: self.now_ns)
        self.facts = replace(SILENT, started_ns=FROM_NS - 120 * S)

    def has_daemon(self, **changes: Any) -> None:
        known: dict[str, Any] = {"simulated": False, "runs": ()}
        self.recorded = {**known, **changes}
        self.pass_seconds(0)

    def pass_seconds(self, seconds: int) -> None:
        self.now_ns += seconds * S
        state = monitor_state(taken_at_ns=self.now_ns, **self.recorded)
        StateFile(self.folder / STATE_FILE).write(state)

    def names(self, *gpus: str) -> None:
        self.facts = replace(self.facts, gpus=gpus)

    def texts(self) -> list[str]:
        """The warnings so far."""
        recorded = [str(warning.message) for warning in self._warned]
        return [text for text in recorded if text.startswith("to gpumon")]


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> World:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    return World(tmp_path, recwarn)


class TestNames:
    def test_are_recorded_once(self, world: World) -> None:
        world.has_daemon(runs=(run(gpu_uuids=()),))
        world.names("99")

        world.doubts.check_names(world.facts)
        world.doubts.check_names(replace(world.facts, gpus=("98",)))
        world.doubts.check_start(world.facts)
        world.doubts.check_end(world.facts, steps=7)

        (text,) = world.texts()
        assert "names GPU 99" in text

    def test_matching_names_cause_no_warning(self, world: World) -> None:
        world.has_daemon(simulated=True)
        world.names("0", "GPU-2")

        world.doubts.check_names(world.facts)
        world.doubts.check_start(world.facts)

        assert world.texts() == []


class TestARunWithoutGpus:
    def test_is_recorded_of_simulated_gpus_when_it_begins(self, world: World) -> None:
        world.has_daemon(simulated=True)

        world.doubts.check_names(world.facts)
        assert world.texts() == []
        world.doubts.check_start(world.facts)

        (text,) = world.texts()
        assert "GPUMON_GPUS=0" in text
        assert "gpus=[0]" in text

    def test_is_recorded_at_its_end_that_the_driver_listed_it_nowhere(self, world: World) -> None:
        world.has_daemon(runs=(run(gpu_uuids=()),))

        world.doubts.check_start(world.facts)
        assert world.texts() == []
        world.doubts.check_end(world.facts, steps=7)

        (text,) = world.texts()
        assert "pid 4242" in text

    def test_is_looked_up_every_ten_seconds_at_most(self, world: World) -> None:
        world.doubts.check_end(world.facts, steps=7)
        world.has_daemon(runs=(run(gpu_uuids=()),))

        world.doubts.check_end(world.facts, steps=8)
        assert world.texts() == []
        world.pass_seconds(10)
        world.doubts.check_end(world.facts, steps=9)

        assert len(world.texts()) == 1

    @pytest.mark.parametrize(
        ("steps", "age_s", "runs"),
        [
            (0, 120, (run(gpu_uuids=()),)),  # it did not train
            (7, 9, (run(gpu_uuids=()),)),  # the daemon may not have joined it yet
            (7, 120, (run(),)),  # it has GPUs
            (7, 120, ()),  # another daemon's
            (7, 120, (run(gpu_uuids=(), job="another"),)),
        ],
    )
    def test_is_recorded_nothing_where_nothing_is_known(
        self, world: World, steps: int, age_s: int, runs: Any
    ) -> None:
        world.has_daemon(runs=runs)
        facts = replace(world.facts, started_ns=FROM_NS - age_s * S)

        world.doubts.check_end(facts, steps)

        assert world.texts() == []


class TestNoOneWhoKnows:
    @pytest.mark.parametrize("raw", [None, b"", b"[]", b"{", b"\xff" * 9, b"x" * (3 << 20)])
    def test_leaves_the_run_alone(self, world: World, raw: bytes | None) -> None:
        if raw is not None:
            (world.folder / STATE_FILE).write_bytes(raw)
        world.names("99")

        world.doubts.check_names(world.facts)
        world.doubts.check_start(world.facts)
        world.doubts.check_end(world.facts, steps=7)

        assert world.texts() == []


def test_warnings_that_are_errors_end_no_training(world: World) -> None:
    world.has_daemon()
    world.names("99")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world.doubts.check_start(world.facts)
