"""What a training process knows about itself: its name, job, rank and GPUs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.facts import MAX_WORLD

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LAUNCHERS: Final = (
    ("RANK", ("WORLD_SIZE",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",)),
    ("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",)),
    ("PMI_RANK", ("PMI_SIZE",)),
    ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
    ("PMIX_RANK", ()),
)
"""Variables for rank and world size: torchrun, Open MPI, MVAPICH, MPICH, Slurm, PMIx.

Slurm comes late: ``mpirun`` in a Slurm job passes the variables of one task to all ranks.
"""
_SLURM_RANK: Final = "SLURM_PROCID"
_FIRST_ODD_SLURM_STEP: Final = 0xFFFF_FFF0
"""From here on Slurm numbers steps without ``srun``: batch scripts, shells."""


class JobRank(NamedTuple):
    """A process's position in its job.

    Attributes:
        job: Id shared by all ranks; ``None`` where no launcher gave one.
        rank: From 0.
        world_size: Ranks in the job.
    """

    job: str | None
    rank: int
    world_size: int


def place_in_job(environ: Mapping[str, str]) -> JobRank:
    """Return rank and job from the environment of torchrun, Slurm or an MPI.

    Rank and world size come from one launcher. A Slurm batch script that trains without ``srun`` is
    one process, however many tasks it requested.

    >>> place_in_job({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1",
    ...               "SLURM_NTASKS": "2"})
    JobRank(job='7.0', rank=1, world_size=2)
    """
    for rank_name, world_names in _LAUNCHERS:
        rank = _first_number(environ, (rank_name,))
        if rank is None or (rank_name == _SLURM_RANK and not _is_slurm_step(environ)):
            continue
        world_size = max(_first_number(environ, world_names) or 1, rank + 1)
        return JobRank(job=_job(environ), rank=rank, world_size=world_size)
    return JobRank(job=_job(environ), rank=0, world_size=1)


def read_run_facts(
    *,
    run: str | None = None,
    gpus: Sequence[int | str] | None = None,
    framework: str = "loop",
    started_ns: int,
    environ: Mapping[str, str] | None = None,
) -> RunFacts:
    """Return the facts for page 0 of the ring.

    Args:
        run: The user's name for the run; else ``$GPUMON_RUN``, else the script's name.
        gpus: Indices or UUIDs; else ``$GPUMON_GPUS``, comma-separated.
        framework: Such as ``"keras/jax"``.
        started_ns: CLOCK_MONOTONIC now.
        environ: Environment variables; by default this process's own.
    """
    environ = os.environ if environ is None else environ
    place = place_in_job(environ)
    name = str(run or environ.get("GPUMON_RUN") or _script_name())
    pid = os.getpid()
    return RunFacts(
        run=f"{name}-r{place.rank}" if place.world_size > 1 else name,
        job=place.job or f"{name}-{_first_of_job(place)}",
        rank=place.rank,
        world_size=place.world_size,
        pid=pid,
        tid=threading.get_native_id(),
        framework=framework,
        gpus=_named_gpus(gpus, environ),
        visible_devices=environ.get("CUDA_VISIBLE_DEVICES"),
        boot_id=_boot_id(),
        started_ns=started_ns,
    )


def _first_of_job(place: JobRank) -> int:
    """Return a pid that identifies the job on this machine: the launcher's for several ranks.

    Used where an MPI names no job; a single process uses its own pid.
    """
    launcher = os.getppid() if place.world_size > 1 else 0
    return launcher if launcher > 1 else os.getpid()


def _job(environ: Mapping[str, str]) -> str | None:
    torch_run = environ.get("TORCHELASTIC_RUN_ID")
    if torch_run and torch_run != "none":  # torchrun's value for an unnamed job
        return torch_run
    slurm_job = environ.get("SLURM_JOB_ID")
    if slurm_job:
        step = environ.get("SLURM_STEP_ID")
        return f"{slurm_job}.{step}" if step else slurm_job
    address = environ.get("MASTER_ADDR")
    if address:
        return f"{address}:{environ.get('MASTER_PORT', '29500')}"
    return environ.get("OMPI_MCA_ess_base_jobid") or environ.get("PMIX_NAMESPACE") or None


def _is_slurm_step(environ: Mapping[str, str]) -> bool:
    """Whether ``srun`` started this process itself."""
    step = environ.get("SLURM_STEP_ID", environ.get("SLURM_STEPID", ""))
    return step.isascii() and step.isdigit() and int(step[:12]) < _FIRST_ODD_SLURM_STEP


def _first_number(environ: Mapping[str, str], names: Sequence[str]) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 12 and int(text) < MAX_WORLD:
            return int(text)
    return None


def _named_gpus(
    gpus: Sequence[int | str] | None, environ: Mapping[str, str]
) -> tuple[str, ...] | None:
    if gpus is None:
        return _split(environ.get("GPUMON_GPUS", "")) or None
    is_one = isinstance(gpus, str) or not isinstance(gpus, Iterable)
    given: Iterable[object] = [gpus] if is_one else gpus
    return tuple(name for gpu in given for name in _split(str(gpu)))


def _split(listed: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in listed.split(",") if part.strip())


def _script_name() -> str:
    script = sys.argv[0] if sys.argv else ""
    if script in ("", "-", "-c", "-m"):
        return "python"
    path = Path(script)
    return path.parent.name if path.name == "__main__.py" else path.stem or "python"


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
