"""Which rings a run removes where no daemon does."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gpumon.core.ring_format.format import RING_BYTES, WORD_FACTS_CRC, WORD_VERSION
from tests.builders.ring import BOOT_ID, held_by_a_process, phases_folder, run_facts
from tests.waiting import until
from trainer_hooks.ring import other_rings
from trainer_hooks.ring.mapped_file import RingFolder, make_ring
from trainer_hooks.ring.other_rings import MOST_LOOKED_AT, sweep_dead_rings
from trainer_hooks.ring.ring_writer import RingWriter

MINUTE_S = 60.0
DAY_S = 24 * 3600.0
WEEK_S = 7 * DAY_S


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    return phases_folder(tmp_path)


def dead_ring(phases: Path, *, boot_id: str = BOOT_ID, poke: tuple[int, int] | None = None) -> Path:
    """A whole ring, last written just now, whose process is gone.

    Args:
        phases: Where it lies.
        boot_id: Of the kernel its process ran on.
        poke: A word of its first page, and another value for it.
    """
    facts = run_facts(boot_id=boot_id)
    memory = make_ring(RingFolder(phases, 0o600), facts, wall_ns=0)
    RingWriter(memory, facts)
    if poke is not None:
        memory.words[poke[0]] = poke[1]
    os.close(memory.descriptor)
    return memory.path


def unmade_ring(phases: Path, number: int = 1, size: int = RING_BYTES) -> Path:
    """What a process leaves that is killed while it makes its ring: a file with nothing in it."""
    path = phases / f"{number}-{number}.ring"
    path.touch()
    os.truncate(path, size)
    return path


def crowd(phases: Path, count: int) -> None:
    """More names in the folder, which cannot go."""
    for number in range(count):
        (phases / f"0-{number}.ring").symlink_to("nowhere")


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine would have a sweep stop before it has seen what a test put there."""
    monkeypatch.setattr(other_rings, "_MOST_TIME_S", 60.0)


def sweep(phases: Path, *, after_s: float) -> int:
    """How many go if a run begins so much later."""
    ahead_ns = int(after_s * 1e9)
    return sweep_dead_rings(
        phases,
        boot_id=BOOT_ID,
        now_ns=time.monotonic_ns() + ahead_ns,
        wall_ns=time.time_ns() + ahead_ns,
    )


def _memory_folder(otherwise: Path) -> Path:
    """Where files live in memory, and the newest names of a folder are listed first."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else otherwise


class TestADeadRing:
    @pytest.mark.parametrize(
        ("made_in", "kept_s"),
        [
            pytest.param(dead_ring, DAY_S, id="whole"),
            pytest.param(unmade_ring, DAY_S, id="never finished"),
            pytest.param(partial(unmade_ring, size=0), DAY_S, id="never begun"),
            pytest.param(partial(dead_ring, boot_id="another"), WEEK_S, id="of another boot"),
            pytest.param(partial(dead_ring, poke=(WORD_FACTS_CRC, 0)), WEEK_S, id="torn facts"),
        ],
    )
    def test_goes_after_a_day_or_a_week_where_its_clock_is_not_known(
        self, phases: Path, made_in: Callable[[Path], Path], kept_s: float
    ) -> None:
        ring = made_in(phases)

        assert sweep(phases, after_s=kept_s - 5) == 0
        assert ring.exists()
        assert sweep(phases, after_s=kept_s + 5) == 1
        assert not ring.exists()

    @pytest.mark.parametrize(("others", "kept_s"), [(64, 15 * MINUTE_S), (256, MINUTE_S)])
    def test_goes_sooner_from_a_crowd(self, phases: Path, others: int, kept_s: float) -> None:
        dead_ring(phases)
        made = time.monotonic_ns(), time.time_ns()
        crowd(phases, others - 1)
        assert _sweeps(phases, made, kept_s + 5) == 0

        (phases / "1-1.ring").symlink_to("nowhere")  # a crowd of one more

        assert _sweeps(phases, made, kept_s - 5) == 0
        assert _sweeps(phases, made, kept_s + 5) == 1

    def test_goes_though_a_user_put_thousands_of_other_files_there(self, tmp_path: Path) -> None:
        with tempfile.TemporaryDirectory(dir=_memory_folder(tmp_path)) as runtime:
            phases = phases_folder(Path(runtime))
            dead_ring(phases)
            for number in range(6_000):
                (phases / f"junk-{number}").touch()

            # Of the time that a sweep may take, others may have had the most.
            assert until(lambda: sweep(phases, after_s=DAY_S + 5) == 1)

    def test_ring_in_memory_is_as_old_as_its_last_record(self, phases: Path) -> None:
        """Such a file keeps the time it was made, whatever is written into it later."""
        ring = dead_ring(phases)
        os.utime(ring, (0, 0))

        assert sweep(phases, after_s=DAY_S - 5) == 0

    def test_ring_on_a_disk_is_as_young_as_its_file(self, phases: Path) -> None:
        ring = dead_ring(phases)
        later_s = time.time() + DAY_S
        os.utime(ring, (later_s, later_s))

        assert sweep(phases, after_s=DAY_S + 5) == 0

    def test_ring_of_another_version_is_left_alone(self, phases: Path) -> None:
        dead_ring(phases, poke=(WORD_VERSION, 2))

        assert sweep(phases, after_s=2 * WEEK_S) == 0


class TestWhatIsLeftAlone:
    def test_a_ring_whose_process_lives(self, phases: Path) -> None:
        ring = dead_ring(phases)

        with held_by_a_process(ring):
            assert sweep(phases, after_s=2 * WEEK_S) == 0
        assert sweep(phases, after_s=2 * WEEK_S) == 1

    def test_a_ring_that_is_being_made_and_locked_already(self, phases: Path) -> None:
        with held_by_a_process(unmade_ring(phases)):
            assert sweep(phases, after_s=2 * WEEK_S) == 0

    @pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a file away")
    def test_a_ring_of_another_user_even_by_the_superuser(self, phases: Path) -> None:
        os.chown(dead_ring(phases), 65_534, 65_534)

        assert sweep(phases, after_s=2 * WEEK_S) == 0

    def test_whatever_else_lies_there(self, phases: Path, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere.ring"
        dead_ring(phases).rename(elsewhere)
        (phases / "1-1.ring").symlink_to(elsewhere)
        (phases / "2-2.ring").mkdir()
        os.mkfifo(phases / "3-3.ring")
        unmade_ring(phases, 4, size=RING_BYTES // 2)
        unmade_ring(phases, 5).rename(phases / "notes.txt")
        before = sorted(phases.iterdir())

        assert sweep(phases, after_s=2 * WEEK_S) == 0
        assert sorted(phases.iterdir()) == before
        assert elsewhere.exists()


class TestASweep:
    def test_looks_at_a_bounded_number_and_gets_round_to_all(self, phases: Path) -> None:
        for number in range(300):
            unmade_ring(phases, number)

        assert 0 < sweep(phases, after_s=2 * DAY_S) <= MOST_LOOKED_AT
        for _ in range(100):
            if not any(phases.iterdir()):
                break
            assert sweep(phases, after_s=2 * DAY_S) <= MOST_LOOKED_AT
        assert not any(phases.iterdir())

    def test_missing_or_empty_folder_is_ignored(self, phases: Path) -> None:
        assert sweep(phases, after_s=DAY_S) == 0
        assert sweep(phases / "none", after_s=DAY_S) == 0


def _sweeps(phases: Path, since: tuple[int, int], after_s: float) -> int:
    """How many go in as many sweeps as it takes to look at every name, and each several times."""
    now_ns, wall_ns = (then + int(after_s * 1e9) for then in since)
    return sum(
        sweep_dead_rings(
            phases,
            boot_id=BOOT_ID,
            now_ns=now_ns + number * 1_000 * MOST_LOOKED_AT,  # a name a microsecond is begun with
            wall_ns=wall_ns,
        )
        for number in range(20)
    )
