"""Specification of shares on their way: told by a training, read from its ring, shown by GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import RunState
from gpumon.sources.rings.phase_rings import PhaseRingReader
from tests.builders_monitor import moment, monitor
from tests.builders_ring import BOOT_ID, WrittenRing, held_by_a_process, now, run_facts
from trainer_hooks.ring.process_ring import ProcessRing


class TestSharesThatATrainingTells:
    def test_are_shown_by_uuid_and_follow_each_change(self, tmp_path: Path) -> None:
        ring = WrittenRing(tmp_path, replace(run_facts(), gpus=("0", "1")))
        reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID)
        daemon, training = monitor(simulated=True), ProcessRing(ring.writer)

        def run_now() -> RunState:
            gpus = tuple(GpuSample(device=Device(uuid=f"GPU-{at}", index=at)) for at in (0, 1))
            frame = Frame(taken_at_ns=now(), gpus=gpus)
            (run,) = daemon.take(moment(now(), frame, rings=reader.read(now()))).runs
            return run

        with held_by_a_process(ring.path):
            assert (run_now().shares, run_now().ratio_changes) == ({}, 0)
            training.tell_shares({"0": 0.5, "1": 0.5})
            assert (run_now().shares, run_now().ratio_changes) == ({"GPU-0": 0.5, "GPU-1": 0.5}, 0)
            training.tell_shares({"0": 0.6, "GPU-1": 0.4})
            assert (run_now().shares, run_now().ratio_changes) == ({"GPU-0": 0.6, "GPU-1": 0.4}, 1)
        reader.close()
