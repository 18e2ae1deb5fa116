"""A daemon's busy counters become busy seconds of a step, or no answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.keras.fake_daemon import FakeDaemon
from trainer_hooks.ring import process_ring
from trainer_hooks.ring.daemon_counters import BusyCounters

DEVICES = ("GPU:0", "GPU:1")
UUIDS = ("GPU-a", "GPU-b1")


class World:
    """A daemon that counts two GPUs once a second, and a run of ten steps a second."""

    def __init__(self, folder: Path) -> None:
        self.daemon = FakeDaemon(folder)
        self.now_s = 1_000.0
        self.step = 0
        self.busy_s = [0.0, 0.0]
        self.counters = BusyCounters(DEVICES, now_ns=lambda: round(1e9 * self.now_s))
        self.counters.forget()

    def passes(self, seconds: float, *busy_ratios: float) -> tuple[float, ...] | None:
        """So many seconds later, in which the GPUs were busy for these parts of the time."""
        self.now_s += seconds
        self.step += round(10 * seconds)
        for gpu, (uuid, ratio) in enumerate(zip(UUIDS, busy_ratios, strict=False)):
            self.busy_s[gpu] += ratio * seconds
            self.daemon.counts(gpu, uuid, observed_s=self.now_s, busy_s=self.busy_s[gpu])
        self.writes()
        return self.counters.busy_seconds(self.step)

    def writes(self, *, age_s: float = 0.0) -> None:
        document = {**self.daemon.document, "monotonic_ns": round(1e9 * (self.now_s - age_s))}
        self.daemon.path.write_text(json.dumps(document))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("GPUMON_GPUS", "0,GPU-b")
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    return World(tmp_path)


class TestBusySecondsOfAStep:
    def test_are_the_busy_part_of_its_time(self, world: World) -> None:
        world.passes(1, 0.5, 0.5)

        assert world.passes(10, 0.4, 0.9) == pytest.approx((0.04, 0.09))

    def test_are_not_recorded_across_two_daemons(self, world: World) -> None:
        """Whose counters began at 0, and may be above those of the one before all the same."""
        world.passes(1, 0.5, 0.5)
        world.daemon.document["pid"] = 2

        assert world.passes(10, 0.4, 0.9) is None
        assert world.passes(10, 0.6, 0.8) == pytest.approx((0.06, 0.08))

    def test_are_recorded_of_a_mig_instance_by_its_label(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPUMON_GPUS", "0:1,GPU-b")
        for seconds, ratio in ((1, 0.5), (10, 0.4)):
            world.now_s += seconds
            world.step += 10 * seconds
            for at, uuid in enumerate(UUIDS):
                world.busy_s[at] += ratio * seconds
                world.daemon.counts(at, uuid, observed_s=world.now_s, busy_s=world.busy_s[at])
            gpus = world.daemon.document["gpus"]
            parent = {**gpus[0], "uuid": "GPU-cut", "label": "0", "busy_ns": 0}
            world.daemon.document["gpus"] = [parent, {**gpus[0], "label": "0:1"}, *gpus[1:]]
            world.writes()
            recorded = world.counters.busy_seconds(world.step)
            world.daemon.document["gpus"] = gpus

        assert recorded == pytest.approx((0.04, 0.04))

    def test_are_recorded_after_five_periods_of_the_daemon(self, world: World) -> None:
        world.passes(1, 0.5, 0.5)

        assert world.passes(4, 0.4, 0.9) is None
        assert world.passes(1, 0.4, 0.9) == pytest.approx((0.04, 0.09))
        assert world.passes(5, 0.6, 0.6) == pytest.approx((0.06, 0.06))

    def test_are_not_of_what_was_before_they_were_forgotten(self, world: World) -> None:
        world.passes(1, 0.5, 0.5)
        world.now_s += 0.5
        world.counters.forget()
        world.writes(age_s=0.4)  # what the daemon counted before its next period is over

        assert world.counters.busy_seconds(world.step) is None
        world.passes(1, 0.0, 0.0)
        assert world.passes(6, 0.2, 0.3) == pytest.approx((0.02, 0.03))

    def test_are_not_of_what_was_before_where_counters_reach_less_far_than_the_state(
        self, world: World
    ) -> None:
        answers = []
        for second in range(1, 22):  # the driver's samples are read every five seconds
            world.now_s += 1
            world.step += 10
            ratios = (1.0, 1.0) if second <= 7 else (0.2, 0.3)
            for gpu, uuid in enumerate(UUIDS):
                world.busy_s[gpu] += ratios[gpu]
                if second % 5 == 0:
                    world.daemon.counts(
                        gpu, uuid, observed_s=world.now_s, busy_s=world.busy_s[gpu],
                        settled_until_s=world.now_s,
                    )  # fmt: skip
            world.writes()
            answers.append(world.counters.busy_seconds(world.step))
            if second == 7:
                world.counters.forget()

        assert [answer for answer in answers[7:] if answer] == [pytest.approx((0.02, 0.03))] * 2


class TestNoAnswer:
    def test_dead_daemon_gives_no_answer(self, world: World) -> None:
        world.passes(1, 0.5, 0.5)
        assert world.counters.is_there
        world.now_s += 10

        assert world.counters.busy_seconds(200) is None
        assert not world.counters.is_there

    def test_restarted_daemon_gives_no_answer_at_first(self, world: World) -> None:
        world.passes(1, 0.5, 0.5)
        world.busy_s = [-5.0, -5.0]

        assert world.passes(10, 0.5, 0.5) is None
        assert world.passes(10, 0.5, 0.5) == pytest.approx((0.05, 0.05))

    def test_missing_gpu_gives_no_answer(self, world: World) -> None:
        assert world.passes(1, 0.5) is None
        assert not world.counters.is_there

    def test_unknown_gpus_give_no_answer(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GPUMON_GPUS")
        monkeypatch.setattr("trainer_hooks.devices.visible_gpus", lambda: ())

        world.passes(1, 0.5, 0.5)

        assert not world.counters.is_there

    @pytest.mark.parametrize("gpus", [None, [{}], "odd", [{"index": 0, "uuid": "GPU-a"}] * 2])
    def test_odd_state_gives_no_answer(self, world: World, gpus: object) -> None:
        assert world.counters.busy_seconds(4) is None
        assert not world.counters.is_there
        world.daemon.document["gpus"] = gpus
        world.writes()

        assert world.counters.busy_seconds(5) is None
