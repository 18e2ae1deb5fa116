"""The facts that a run records about itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.facts import encode_facts, parse_facts
from trainer_hooks.ring.run_facts import place_in_job, read_run_facts


def facts(environ: dict[str, str] | None = None, **settings: object) -> RunFacts:
    return read_run_facts(started_ns=1, environ=environ or {}, **settings)  # type: ignore[arg-type]


class TestTheNameOfARun:
    @pytest.mark.parametrize(
        ("script", "name"),
        [
            ("/home/me/train.py", "train"),
            ("/x/package/__main__.py", "package"),
            ("-c", "python"),
            ("", "python"),
        ],
    )
    def test_is_the_scripts_where_neither_caller_nor_environment_names_it(
        self, monkeypatch: pytest.MonkeyPatch, script: str, name: str
    ) -> None:
        monkeypatch.setattr(sys, "argv", [script])

        assert facts().run == name
        assert facts({"GPUMON_RUN": "b"}).run == "b"
        assert facts({"GPUMON_RUN": "b"}, run="a").run == "a"

    def test_has_the_rank_where_there_are_several(self) -> None:
        assert facts({"RANK": "1", "WORLD_SIZE": "4"}, run="a").run == "a-r1"
        assert facts({"RANK": "0", "WORLD_SIZE": "1"}, run="a").run == "a"


class TestTheJob:
    @pytest.mark.parametrize(
        ("environ", "place"),
        [
            ({"TORCHELASTIC_RUN_ID": "abc", "RANK": "3", "WORLD_SIZE": "8"}, ("abc", 3, 8)),
            ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1"}, ("7.2", 1, 2)),
            (
                {"MASTER_ADDR": "n1", "MASTER_PORT": "1234", "TORCHELASTIC_RUN_ID": "none"},
                ("n1:1234", 0, 1),
            ),
            ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (None, 1, 2)),
            ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (None, 2, 3)),
            ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"}, (None, 1, 4)),
            ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-n1-77@1"}, ("prterun-n1-77@1", 1, 2)),
            ({"RANK": "x", "WORLD_SIZE": "-2"}, (None, 0, 1)),
            ({"RANK": "9" * 40}, (None, 0, 1)),
        ],
    )
    def test_is_what_the_launcher_left(
        self, environ: dict[str, str], place: tuple[str | None, int, int]
    ) -> None:
        """Its id, the rank and how many there are."""
        assert place_in_job(environ) == place

    def test_is_recorded_by_the_innermost_launcher(self) -> None:
        """Within a Slurm job, mpirun hands one Slurm task's variables to all its ranks."""
        slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
        slurm["SLURM_NTASKS"] = "2"
        open_mpi = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}
        torchrun = {"RANK": "3", "WORLD_SIZE": "16"}

        assert place_in_job(slurm) == ("7.0", 0, 2)
        assert place_in_job(slurm | open_mpi) == ("7.0", 5, 8)
        assert place_in_job(slurm | torchrun) == ("7.0", 3, 16)

    @pytest.mark.parametrize("step", [None, "4294967291", "4294967294"])
    def test_has_one_rank_in_a_slurm_script_that_does_without_srun(self, step: str | None) -> None:
        environ = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
        if step is not None:
            environ["SLURM_STEP_ID"] = step

        place = place_in_job(environ)

        assert (place.rank, place.world_size) == (0, 1)

    def test_is_the_same_for_ranks_of_a_launcher_that_names_none(self) -> None:
        ranks = [facts({"PMI_RANK": rank, "PMI_SIZE": "2"}, run="a") for rank in "01"]

        assert {rank.job for rank in ranks} == {f"a-{os.getppid()}"}
        assert facts(run="a").job == f"a-{os.getpid()}"


class TestTheGpus:
    @pytest.mark.parametrize(
        ("given", "environ", "gpus"),
        [
            ([0, 1], {"GPUMON_GPUS": "5"}, ("0", "1")),
            (["GPU-8f"], {}, ("GPU-8f",)),
            (2, {}, ("2",)),
            ("0, 1", {}, ("0", "1")),
            (["0,1", 2], {}, ("0", "1", "2")),
            (np.arange(2), {}, ("0", "1")),
            (np.int64(1), {}, ("1",)),
            (1.5, {}, ("1.5",)),
            ([None], {}, ("None",)),
            (None, {"GPUMON_GPUS": " 0, GPU-8f ,"}, ("0", "GPU-8f")),
            (None, {"GPUMON_GPUS": ""}, None),
            (None, {}, None),
        ],
    )
    def test_are_those_given(
        self, given: object, environ: dict[str, str], gpus: tuple[str, ...] | None
    ) -> None:
        assert facts(environ, gpus=given).gpus == gpus
        assert facts({**environ, "CUDA_VISIBLE_DEVICES": "3"}).visible_devices == "3"

    @pytest.mark.parametrize("name", [5, Path("a/b"), ["x"]])
    def test_gpus_are_recorded_though_the_run_name_is_not_text(self, name: Any) -> None:
        recorded = facts(run=name, gpus=[0])

        assert (recorded.run, recorded.gpus) == (str(name), ("0",))
        assert parse_facts(encode_facts(recorded)).gpus == ("0",)
