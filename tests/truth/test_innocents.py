"""Machines that wait for something else than input, watched with ``--stacks``: none is starved.

Their pauses are those of the generators; in each, the process is where such a program waits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pytest

from gpumon.core.stacks.stack import ProcessStack, StackFrame, ThreadStack
from gpumon.core.state import GpuState
from tests.truth.daemon_states import Sampler, daemon_states, driver_windows
from tests.truth.input_model.cases import FAMILIES
from tests.truth.score.detectors import STARVED
from tests.truth.workloads import DEVELOPMENT_SEEDS
from tests.truth.workloads.truth import Workload

HOURS: Final = 0.25
IS_WHOLE: Final = bool(os.environ.get("GPUMON_WHOLE_TABLE"))
SEEDS: Final = DEVELOPMENT_SEEDS[: 6 if IS_WHOLE else 1]
_PACKAGES: Final = "/env/lib/python3.11/site-packages"
_PYTHON: Final = "/usr/lib/python3.11"
_MAIN: Final = ("main", "/home/me/train.py")

Calls = Sequence[tuple[str, str]]
"""Function and path of each call, the innermost first."""


def process(calls: Calls, pid: int = 100) -> ProcessStack:
    frames = tuple(StackFrame(function, path, 1) for function, path in calls)
    return ProcessStack(pid, None, "python train.py", (ThreadStack(pid, frames),))


SAVES: Final = [process([("save", f"{_PACKAGES}/torch/serialization.py"), _MAIN])]
SCORES: Final = [
    process([("bleu", "/home/me/scores.py"), ("evaluate", "/home/me/train.py"), _MAIN])
]
MEETS: Final = [process([
    ("all_reduce", f"{_PACKAGES}/torch/distributed/distributed_c10d.py"), _MAIN,
])]  # fmt: skip
RECEIVES: Final = [process([
    ("SocketIO.readinto", f"{_PYTHON}/socket.py"), ("exchange", "/home/me/client.py"), _MAIN,
])]  # fmt: skip
SERVES: Final = [process([
    ("SelectSelector.select", f"{_PYTHON}/selectors.py"),
    ("BaseServer.serve_forever", f"{_PYTHON}/socketserver.py"), _MAIN,
])]  # fmt: skip
ANSWERS_A_QUEUE: Final = [process([("Queue.get", f"{_PYTHON}/queue.py"), _MAIN])]
TYPES: Final = [process([
    ("EpollSelector.select", f"{_PYTHON}/selectors.py"),
    ("BaseEventLoop._run_once", f"{_PYTHON}/asyncio/base_events.py"),
    ("IPKernelApp.start", f"{_PACKAGES}/ipykernel/kernelapp.py"),
])]  # fmt: skip
PLAYS: Final = [
    process([("Queue.get", f"{_PYTHON}/multiprocessing/queues.py"), _MAIN]),
    process([("MountainCar.step", f"{_PACKAGES}/gymnasium/envs/classic_control/mountain_car.py"),
             ("play_episode", "/home/me/train.py"), _MAIN], pid=101),
]  # fmt: skip
SENDS: Final = [process([
    ("SSLSocket.read", f"{_PYTHON}/ssl.py"), ("log_images", "/home/me/train.py"), _MAIN,
])]  # fmt: skip
COMPILES: Final = [process([
    ("_compile", f"{_PACKAGES}/torch/_dynamo/convert_frame.py"), _MAIN,
])]  # fmt: skip
WORKS: Final = [process([("search", "/home/me/matching.py"), _MAIN])]

INNOCENTS: Final[Mapping[tuple[str, str], Sequence[ProcessStack]]] = {
    ("workloads", "checkpoints"): SAVES,
    ("workloads", "frequent_checkpoints"): SAVES,
    ("workloads", "asynchronous_checkpoints"): SAVES,
    ("workloads", "many_gpus"): SAVES,
    ("workloads", "validation"): SCORES,
    ("workloads", "scores_on_the_host"): SCORES,
    ("workloads", "generation"): SCORES,
    ("workloads", "rounds"): MEETS,
    ("workloads", "federated_client"): RECEIVES,
    ("workloads", "roll_outs"): PLAYS,
    ("workloads", "inference_server"): SERVES,
    ("workloads", "notebook"): TYPES,
    ("workloads", "requests_by_hand"): ANSWERS_A_QUEUE,
    ("renewal", "checkpoints"): SAVES,
    ("renewal", "evaluations_on_the_cpu"): SCORES,
    ("renewal", "logs_and_plots"): SENDS,
    ("renewal", "recompiling"): COMPILES,
    ("renewal", "slow_network_rounds"): MEETS,
    ("renewal", "federated_rounds"): RECEIVES,
    ("renewal", "inference_server"): SERVES,
    ("renewal", "notebook"): TYPES,
    ("renewal", "rollouts"): PLAYS,
    ("renewal", "rendered_frames"): WORKS,
    ("renewal", "garbage_collections"): WORKS,
    ("renewal", "host_work"): WORKS,
    ("renewal", "optimizer_offload"): WORKS,
    ("programs", "finetune_checkpoints"): SAVES,
    ("programs", "generation_evaluation"): SCORES,
    ("programs", "roll_outs"): PLAYS,
    ("programs", "gan_images"): SENDS,
    ("programs", "federated_client"): RECEIVES,
    ("programs", "slow_rank"): MEETS,
    ("programs", "llm_server"): ANSWERS_A_QUEUE,
    ("programs", "notebook"): TYPES,
}
"""By generator and kind."""
LOADS: Final = [process([
    ("_BaseDataLoaderIter.__next__", f"{_PACKAGES}/torch/utils/data/dataloader.py"), _MAIN,
])]  # fmt: skip


def watched(workload: Workload, processes: Sequence[ProcessStack]) -> list[GpuState]:
    """Its GPUs after a quarter of an hour."""
    rng = np.random.default_rng(workload.seed)
    window_ms = float(rng.uniform(1000 / 6, 250))
    windows = [
        driver_windows(gpu, workload.duration_ms, window_ms, window_ms - rng.uniform(0, window_ms))
        for gpu in workload.gpus
    ]
    sampler = Sampler(workload, processes)
    for _, state in daemon_states(workload, windows, tagged=False, sampler=sampler):
        last = state
    return list(last.gpus)


@pytest.mark.parametrize(("family", "kind"), [*INNOCENTS][:: 1 if IS_WHOLE else 6])
def test_a_machine_that_waits_for_something_else_is_not_starved(family: str, kind: str) -> None:
    for seed in SEEDS:
        workload = FAMILIES[family].machine(kind, seed, HOURS)
        for gpu in watched(workload, INNOCENTS[family, kind]):
            assert gpu.verdict.name not in STARVED, f"seed {seed}: {gpu.verdict}"
            assert gpu.totals.starved_ns == 0


def test_a_machine_with_a_late_loader_is_starved() -> None:
    workload = FAMILIES["workloads"].machine("worker_waves", SEEDS[0], HOURS)

    (gpu,) = watched(workload, LOADS)

    assert gpu.verdict.name in STARVED
    assert gpu.totals.starved_ns > 0.5 * gpu.totals.lost_ns
