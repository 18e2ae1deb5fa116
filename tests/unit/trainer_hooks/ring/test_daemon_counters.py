"""What a run reads about its GPUs from the state that a daemon writes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.runtime_paths import MAX_STATE_BYTES, STATE_FILE
from gpumon.core.state import GpuState
from gpumon.outlets.state_file import StateFile
from tests.builders.state import (
    BOOT_ID,
    HEALTHY_UUID,
    STARVED_UUID,
    S,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)
from trainer_hooks.ring.daemon_counters import GpuRatios
from trainer_hooks.ring.daemon_state import state_folders

OURS = RunFacts(
    run="resnet", job="slurm-4711.0", rank=0, pid=4242, boot_id=BOOT_ID, started_ns=0, gpus=None
)
FROM_NS = 1_000_000_000_000


class World:
    """A daemon that writes its state on request, and a run that reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ns = FROM_NS
        self.ratios = GpuRatios([folder], BOOT_ID, now_ns=lambda: self.now_ns)

    def writes(self, *gpus: GpuState, daemon: int = 1, **changes: Any) -> None:
        state = monitor_state(taken_at_ns=self.now_ns, gpus=gpus, **changes)
        path = self.folder / STATE_FILE
        StateFile(path).write(state)
        path.write_text(json.dumps({**json.loads(path.read_text()), "pid": daemon}))

    def passes(self, duration_s: float) -> None:
        self.now_ns += round(S * duration_s)

    def epoch(self, *after: GpuState, facts: RunFacts = OURS, **changes: Any) -> dict[str, float]:
        """An epoch of ten seconds, at whose end the daemon writes ``after``."""
        self.ratios.begin()
        self.passes(10)
        self.writes(*after, **changes)
        return dict(self.ratios.since_then(facts))


@pytest.fixture
def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    one.writes(starved_gpu(), healthy_gpu())
    return one


def later(gpu: GpuState, **more_s: float) -> GpuState:
    """The same GPU with more seconds in some of its counters."""
    totals = gpu.totals
    changed = {f"{k[:-2]}_ns": getattr(totals, f"{k[:-2]}_ns") + S * v for k, v in more_s.items()}
    return gpu._replace(totals=totals._replace(**changed))


BUSIER = later(starved_gpu(), observed_s=10, busy_s=4, in_use_s=8, suspected_s=2)


BOTH = {"gpu_busy_ratio": 0.4, "starved_ratio": 0.25}


def named(*gpus: str) -> dict[str, Any]:
    """A run that the daemon joined to no GPU, and that names some."""
    return {"facts": replace(OURS, gpus=gpus), "runs": ()}


class TestTheRatiosOfAnEpoch:
    @pytest.mark.parametrize(
        ("after", "changes", "ratios"),
        [
            pytest.param([BUSIER, healthy_gpu()], {}, BOTH, id="differences of the counters"),
            pytest.param([BUSIER, later(healthy_gpu(), observed_s=10, busy_s=10, in_use_s=10)],
                         {"runs": (run(gpu_uuids=(STARVED_UUID, HEALTHY_UUID)),)},
                         {"gpu_busy_ratio": 0.7, "starved_ratio": 2 / 18},
                         id="of all GPUs of the run together"),
            pytest.param([later(starved_gpu(), observed_s=10, busy_s=6, in_use_s=10,
                                suspected_s=9)], {},
                         {"gpu_busy_ratio": 0.6, "starved_ratio": 0.4},
                         id="never starved for longer than it was idle"),
            pytest.param([later(starved_gpu(), observed_s=10)], {}, {"gpu_busy_ratio": 0.0},
                         id="of time in which no GPU was in use"),
            pytest.param([BUSIER], {"facts": replace(OURS, pid=7)}, BOTH,
                         id="of a run known by its job, in a container"),
            pytest.param([BUSIER], {"facts": replace(OURS, job="resnet-1")}, {},
                         id="not of another run with the same pid"),
            pytest.param([BUSIER, healthy_gpu()], named("0"), BOTH, id="of the GPU it named"),
            pytest.param([BUSIER, healthy_gpu()], named(STARVED_UUID[:8]), BOTH,
                         id="of the GPU it named by the beginning of its UUID"),
            pytest.param([BUSIER], {"boot_id": "another"}, {}, id="not of another boot"),
            pytest.param([BUSIER], {"replayed": True}, {}, id="not of a recording"),
        ],
    )  # fmt: skip
    def test_ratios_of_an_epoch_are_the_counters_over_its_time(
        self,
        world: World,
        after: list[GpuState],
        changes: dict[str, Any],
        ratios: dict[str, float],
    ) -> None:
        assert world.epoch(*after, **changes) == pytest.approx(ratios)

    def test_are_found_in_a_state_as_large_as_any_reader_takes(self, world: World) -> None:
        world.ratios.begin()
        world.passes(10)
        world.writes(BUSIER, healthy_gpu())
        path = world.folder / STATE_FILE
        path.write_bytes(path.read_bytes().rjust(MAX_STATE_BYTES))

        assert world.ratios.since_then(OURS) == BOTH

    def test_are_not_known_where_another_daemon_began_to_count_meanwhile(
        self, world: World
    ) -> None:
        """Its counters began at 0, and may be above those of the one before all the same."""
        assert world.epoch(BUSIER, healthy_gpu(), daemon=2) == {}

        busier_still = later(BUSIER, observed_s=10, busy_s=5, in_use_s=10)
        assert world.epoch(busier_still, healthy_gpu(), daemon=2) == {
            "gpu_busy_ratio": 0.5,
            "starved_ratio": 0.0,
        }

    def test_repeat_where_the_counters_did_not_move(self, world: World) -> None:
        first = world.epoch(BUSIER, healthy_gpu())

        assert world.epoch(BUSIER, healthy_gpu()) == first

    def test_repeat_in_epochs_shorter_than_a_look_at_the_file(self, world: World) -> None:
        first = world.epoch(BUSIER, healthy_gpu())
        world.passes(0.01)
        (world.folder / STATE_FILE).unlink()
        world.ratios.begin()

        assert world.ratios.since_then(OURS) == first


class TestTheRatiosOfAMigInstance:
    def test_are_its_own_and_not_those_of_every_instance_of_its_gpu(self, world: World) -> None:
        me = replace(starved_gpu().device, uuid="MIG-a", parent_uuid="GPU-a", mig_index=1)
        other = replace(
            healthy_gpu().device, index=0, uuid="MIG-b", parent_uuid="GPU-a", mig_index=0
        )
        world.writes(starved_gpu(device=me), healthy_gpu(device=other))
        after = (
            BUSIER._replace(device=me),
            later(healthy_gpu(device=other), observed_s=10, busy_s=10),
        )

        assert world.epoch(*after, **named("0:1"))["gpu_busy_ratio"] == 0.4

    def test_are_not_those_of_a_gpu_that_is_named(self, world: World) -> None:
        part = replace(starved_gpu().device, uuid="MIG-a", parent_uuid="GPU-a", mig_index=1)
        world.writes(starved_gpu(device=part))

        assert world.epoch(BUSIER._replace(device=part), **named("0")) == {}


class TestThereIsNoRatio:
    def test_missing_daemon_gives_no_ratio(self, tmp_path: Path) -> None:
        ratios = GpuRatios([tmp_path / "none"], BOOT_ID)
        ratios.begin()

        assert ratios.since_then(OURS) == {}
        assert not ratios.is_there()

    def test_epoch_in_which_the_daemon_started_has_no_ratio(self, tmp_path: Path) -> None:
        assert World(tmp_path).epoch(BUSIER) == {}

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"[]",
            b"{}",
            b"[" * 100_000,
            b"\xff\xfe",
            b'{"schema": "gpumon.state/2"}',
            json.dumps({"schema": "gpumon.state/1", "monotonic_ns": "x"}).encode(),
        ],
    )
    def test_invalid_state_gives_no_ratio(self, world: World, raw: bytes) -> None:
        world.ratios.begin()
        world.passes(10)
        (world.folder / STATE_FILE).write_bytes(raw)

        assert world.ratios.since_then(OURS) == {}

    @pytest.mark.parametrize(
        ("part", "odd"),
        [
            ("gpus", 3),
            ("gpus", [{}]),
            ("gpus", [None]),
            ("gpus", [{"index": 0, "uuid": STARVED_UUID, "observed_ns": float("inf")}]),
            ("runs", None),
            ("runs", [{"job": 1}]),
            ("pid", [4711]),
        ],
    )
    def test_odd_parts_of_a_state_give_no_ratio(self, world: World, part: str, odd: object) -> None:
        world.ratios.begin()
        world.passes(10)
        world.writes(BUSIER)
        document = json.loads((world.folder / STATE_FILE).read_text())
        (world.folder / STATE_FILE).write_text(json.dumps({**document, part: odd}))

        assert world.ratios.since_then(OURS) == {}

    def test_blocking_pipe_gives_no_ratio(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / STATE_FILE)

        assert not GpuRatios([tmp_path], BOOT_ID).is_there()

    def test_symbolic_link_gives_no_ratio(self, world: World) -> None:
        (world.folder / STATE_FILE).rename(world.folder / "elsewhere")
        (world.folder / STATE_FILE).symlink_to(world.folder / "elsewhere")

        assert not world.ratios.is_there()


class TestWhereItLooks:
    def test_is_the_folder_that_was_named_and_no_other(self, tmp_path: Path) -> None:
        assert state_folders({"GPUMON_RUNTIME_DIR": str(tmp_path)}, os.geteuid()) == [tmp_path]

    def test_is_no_folder_that_others_may_write(self, tmp_path: Path) -> None:
        folder = tmp_path / "gpumon"
        folder.mkdir()
        folder.chmod(0o777)

        assert folder not in state_folders({"XDG_RUNTIME_DIR": str(tmp_path)}, os.geteuid())
