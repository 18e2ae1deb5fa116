"""A process that multiprocessing started from a tagged one is no run before its first step."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import LOOP_BEGAN, RingKind
from gpumon.core.ring_format.facts import parse_facts
from gpumon.core.ring_format.format import FACTS_OFFSET, parse_header
from tests.ring_contents import records_in
from trainer_hooks import phase, step, timed


class OwnLoader:
    """A loader of one's own code, of two batches."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))


def load_item(folder: Path) -> None:
    os.environ["GPUMON_RUNTIME_DIR"] = str(folder)
    with phase("input_wait"):
        time.sleep(0.001)
    with phase("other"):
        list(timed(range(2)))
    with phase(7), phase(["input_wait"]):  # type: ignore[arg-type]
        assert list(timed(range(3), 3.5)) == [0, 1, 2]  # type: ignore[call-overload]


def train_rank(folder: Path) -> None:
    os.environ["GPUMON_RUNTIME_DIR"] = str(folder)
    for _batch in timed(OwnLoader()):
        with phase("train_step"):
            pass
        step(8)


def run_in_child(method: str, target: Callable[[Path], None], folder: Path) -> None:
    """A forkserver keeps the environment of whoever needed it first: the folder is an argument."""
    child = mp.get_context(method).Process(target=target, args=(folder,))  # type: ignore[attr-defined]
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0


def rings(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "phases").glob("*.ring"))]


def steps_in(ring: bytes) -> list[int]:
    return [event.value for event in records_in(ring) if event.kind is RingKind.STEP]


def phases_in(ring: bytes) -> set[TrainingPhase]:
    return {event.phase for event in records_in(ring) if event.kind is RingKind.ENTER}


def has_its_loop(ring: bytes) -> bool:
    """Whether it has the beginning of the loop over batches, and what loads them."""
    facts = parse_facts(ring[FACTS_OFFSET : FACTS_OFFSET + parse_header(ring).facts_bytes])
    marks = [event.value for event in records_in(ring) if event.kind is RingKind.EVENT]
    return "OwnLoader" in str(facts.loader) and LOOP_BEGAN in marks


@pytest.fixture
def tagged_parent(own_folder: Path) -> bytes:
    """This process has a ring; its bytes."""
    with phase("train_step"):
        pass
    (ring,) = rings(own_folder)
    return ring


class TestAChildOfATaggedProcess:
    @pytest.mark.filterwarnings("default:gpumon knows no phase")
    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_child_that_only_loads_creates_no_ring(
        self, method: str, own_folder: Path, tagged_parent: bytes
    ) -> None:
        run_in_child(method, load_item, own_folder)

        assert len(rings(own_folder)) == 1

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_has_a_ring_from_its_first_step_on(
        self, method: str, own_folder: Path, tagged_parent: bytes
    ) -> None:
        run_in_child(method, train_rank, own_folder)

        (ring,) = (ring for ring in rings(own_folder) if steps_in(ring))
        assert steps_in(ring) == [1, 2]
        assert has_its_loop(ring)


class TestAChildOfAProcessThatTagsNothing:
    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_has_a_ring_from_its_first_tag_on(self, method: str, own_folder: Path) -> None:
        run_in_child(method, train_rank, own_folder)

        (ring,) = rings(own_folder)
        assert steps_in(ring) == [1, 2]
        assert TrainingPhase.INPUT_WAIT in phases_in(ring)
        assert has_its_loop(ring)
