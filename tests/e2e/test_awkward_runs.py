"""Runs that tag nonsense, crowds of runs, ranks that come and go, and recordings of before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.command_line import Shell
from tests.daemon import LONG_STEP_S, FollowingDaemon
from tests.e2e.hurried_daemon import ROOT, started_training
from tests.e2e.ring_programs import MANY, THIRD_UID, by
from tests.needs import in_make_truth
from tests.neighbours import OTHER_UID, as_root, shared_runtime_folder
from tests.patience import wait_until
from tests.training_processes import TRAINING, process

pytestmark = pytest.mark.slow

GARBAGE = ROOT / "tests" / "e2e" / "garbage_tags.py"
STEADY = ROOT / "tests" / "e2e" / "steady_training.py"
RECORDINGS = ROOT / "tests" / "recordings"
KINDS = ("workers", "calls", "records", "bytes")
"""By the number of its GPU; the first is healthy itself."""
HEALTHY, RANK_0, RANK_1 = 0, len(KINDS), len(KINDS) + 1
DIAGNOSED_FROM_S = 11.0
STEP_S = 0.1
CROWD = 1_000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowingDaemon]:
    """One whose folder of rings everybody may use, and who follows all of these."""
    with shared_runtime_folder() as runtime:
        watching = FollowingDaemon(tmp_path_factory.mktemp("awkward"), gpus=RANK_1 + 1)
        watching.runtime_dir = runtime
        watching.environ["GPUMON_RUNTIME_DIR"] = str(runtime)
        with watching:
            yield watching


@pytest.fixture(scope="module")
def garbage(daemon: FollowingDaemon) -> Iterator[dict[str, int]]:
    """Pids of the healthy training and of those that tag nonsense, by kind."""
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(started_training(daemon, GARBAGE, kind, gpu, kind)).pid
            for gpu, kind in enumerate(KINDS)
        }


@pytest.fixture(scope="module")
def ranks(daemon: FollowingDaemon, garbage: dict[str, int]) -> Iterator[list[int]]:
    """Pids of rank 0, which stays, and of the three that were rank 1 after one another."""

    def rank(number: int, gpu: int) -> Any:
        job = {"RANK": str(number), "WORLD_SIZE": "2"}
        return started_training(daemon, STEADY, "elastic", gpu, "steady", **job)

    with ExitStack() as stack:
        pids = [stack.enter_context(rank(0, RANK_0)).pid]
        for is_last in (False, False, True):
            comes = stack.enter_context(rank(1, RANK_1))
            pids.append(comes.pid)
            wait_until(lambda: steps(daemon.report()).get(pids[-1], 0) > 5)
            if not is_last:
                comes.kill()
                comes.wait()
        yield pids


@pytest.fixture(scope="module")
def settled(daemon: FollowingDaemon, garbage: dict[str, int], ranks: list[int]) -> dict[str, Any]:
    """The report once all that work well have worked for long enough to be diagnosed."""

    def is_conclusive() -> bool:
        gpus = daemon.report()["gpus"]
        return all(gpus[gpu]["in_use_seconds"] > DIAGNOSED_FROM_S for gpu in (HEALTHY, RANK_0))

    wait_until(is_conclusive, 60)
    return daemon.report()


def steps(report: dict[str, Any]) -> dict[int, int]:
    """Of each run that is listed, by its pid."""
    return {run["pid"]: run["steps"] for run in report["runs"]}


def written_s(daemon: FollowingDaemon, gpu: int) -> float:
    """How long that GPU was busy beside the daemon, by what its training run wrote."""
    lines = map(json.loads, daemon.spans.read_text(encoding="ascii").splitlines())
    spans_ns = [line["end_ns"] - line["start_ns"] for line in lines if line["gpu"] == gpu]
    return float(sum(spans_ns)) / 1e9 - LONG_STEP_S


class TestATrainingBesideOthersThatTagNonsense:
    def test_waits_for_nothing(self, settled: dict[str, Any]) -> None:
        gpu = settled["gpus"][HEALTHY]

        assert gpu["verdict"] not in ("starved", "starvation_suspected", "hanging")
        assert gpu["starved_seconds"] < 0.05 * gpu["in_use_seconds"]

    def test_has_all_its_steps_and_none_of_theirs(
        self, settled: dict[str, Any], garbage: dict[str, int]
    ) -> None:
        run = next(run for run in settled["runs"] if run["pid"] == garbage["workers"])
        waits_s, wall_s = run["phase_seconds"]["input_wait"], run["phase_seconds"]["train_step"]

        assert run["steps"] * STEP_S == pytest.approx(wall_s, rel=0.3)
        assert waits_s < 0.2 * wall_s

    def test_is_busy_as_long_as_it_wrote_itself(
        self, daemon: FollowingDaemon, settled: dict[str, Any]
    ) -> None:
        busy_s = settled["gpus"][HEALTHY]["busy_seconds"]

        window_s = 1 / 6  # the last one may reach beyond the last span
        assert 0.9 * DIAGNOSED_FROM_S < busy_s <= written_s(daemon, HEALTHY) + window_s

    def test_is_watched_by_a_daemon_that_answers_and_whose_sums_close(
        self, daemon: FollowingDaemon, settled: dict[str, Any]
    ) -> None:
        assert daemon.get("/-/healthy")[0] == 200
        assert daemon.get("/metrics")[0] == 200
        assert "Traceback" not in daemon.log()
        for gpu in settled["gpus"]:
            parts_s = gpu["busy_seconds"] + sum(gpu["idle_by_cause"].values())
            assert parts_s + gpu["pending_seconds"] == pytest.approx(
                gpu["observed_seconds"], abs=1e-6
            )

    @pytest.mark.parametrize("kind", KINDS[1:])
    def test_is_on_no_gpu_of_theirs(self, settled: dict[str, Any], kind: str) -> None:
        gpu = settled["gpus"][KINDS.index(kind)]

        assert gpu["verdict"] in ("not_in_use", "too_short_to_judge", "hanging")
        assert (gpu["busy_seconds"], gpu["suspected_seconds"]) == (0, 0)


class TestAJobWhoseRanksComeAndGo:
    def test_lists_the_newest_process_of_each_rank(
        self, settled: dict[str, Any], ranks: list[int]
    ) -> None:
        runs = [run for run in settled["runs"] if run["run"].startswith("elastic")]

        assert {run["run"]: (run["pid"], run["alive"]) for run in runs} == {
            "elastic-r0": (ranks[0], True),
            "elastic-r1": (ranks[-1], True),
        }

    def test_has_lost_nothing_on_the_rank_that_stays(self, settled: dict[str, Any]) -> None:
        gpu = settled["gpus"][RANK_0]

        assert gpu["verdict"] not in ("starved", "starvation_suspected", "hanging")
        assert gpu["idle_by_cause"]["imbalance"] < 0.05 * gpu["in_use_seconds"]

    def test_is_not_starved_on_the_rank_that_comes_again(self, settled: dict[str, Any]) -> None:
        gpu = settled["gpus"][RANK_1]

        assert gpu["verdict"] not in ("starved", "starvation_suspected", "hanging")
        assert gpu["starved_seconds"] < 0.05 * gpu["in_use_seconds"]


@pytest.fixture(scope="module")
def crowded(
    daemon: FollowingDaemon, settled: dict[str, Any], garbage: dict[str, int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The pid of someone's run that begins when the others are there; a report then."""
    words = (str(daemon.runtime_dir), str(CROWD))
    with process(by(OTHER_UID, MANY), daemon.runtime_dir, *words):
        wait_until(lambda: len(daemon.state()["runs"]) > 200, 60)
        with process(by(THIRD_UID, TRAINING), daemon.runtime_dir) as one:
            wait_until(lambda: one.pid in steps(daemon.report()), 60)
            before = steps(daemon.report())[garbage["workers"]]
            wait_until(lambda: steps(daemon.report())[garbage["workers"]] > before + 10, 60)
            yield one.pid, daemon.report()


@as_root
class TestARunBesideAThousandOfAnotherUser:
    def test_is_reported_with_its_steps(self, crowded: tuple[int, dict[str, Any]]) -> None:
        pid, report = crowded

        assert steps(report)[pid] == 3

    def test_leaves_some_of_the_thousand_out_and_says_whose(
        self, crowded: tuple[int, dict[str, Any]]
    ) -> None:
        _, report = crowded

        assert any(f"of uid {OTHER_UID}" in note for note in report["notes"])
        assert sum(run["run"].startswith("run-") for run in report["runs"]) <= 256

    def test_is_beside_a_run_whose_verdict_stays(
        self, crowded: tuple[int, dict[str, Any]], settled: dict[str, Any]
    ) -> None:
        _, report = crowded
        before, after = settled["gpus"][HEALTHY], report["gpus"][HEALTHY]

        assert after["verdict"] not in ("starved", "starvation_suspected", "hanging")
        assert after["busy_seconds"] > before["busy_seconds"]


class TestARecordingOfAnOlderVersion:
    """Made before hangs, suspension and bounds existed; the seconds are those of that version."""

    @pytest.mark.parametrize(
        ("name", "word", "verdicts", "waited_s", "busy_s"),
        [
            ("fake_boards", "Starved", ["starved", "healthy"], 29.833, 30.0),
            ("nvidia-h100-80gb-hbm3", "Partly busy", ["partial"], 0.0, 8.901),
            ("nvidia-h100-80gb-hbm3-keras", "Starved", ["starved"], 18.037, 19.525),
            ("nvidia-h200", "Partly busy", ["partial"], 0.0, 8.876),
            pytest.param(
                "nvidia-h200-runs",
                "Starved",
                ["starved"],
                59.254,
                262.608,
                marks=in_make_truth,
            ),
        ],
    )
    def test_has_the_same_verdicts_and_seconds_as_before(
        self,
        gpumon: Shell,
        name: str,
        word: str,
        verdicts: list[str],
        waited_s: float,
        busy_s: float,
    ) -> None:
        path = RECORDINGS / f"{name}.gpumon"
        gpus = gpumon("replay", path, "--json").document["gpus"]

        assert gpumon("replay", path).out.startswith(f"Verdict: {word} ")
        assert [gpu["verdict"] for gpu in gpus] == verdicts
        assert gpus[0]["idle_by_cause"]["input_wait"] == pytest.approx(waited_s, abs=0.001)
        assert gpus[0]["busy_seconds"] == pytest.approx(busy_s, abs=0.001)
        assert not any(gpu["hanging_seconds"] for gpu in gpus)
        assert not any(gpu["now"] and gpu["now"]["suspended"] for gpu in gpus)
