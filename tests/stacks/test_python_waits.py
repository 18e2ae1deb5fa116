"""Real stacks of threads and processes, and the causes that they show."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from tests.stacks.seen import Seen

INPUT = IdleCause.INPUT_WAIT
EXPECTED: dict[str, IdleCause | None] = {
    "queue_of_a_process": INPUT,
    "pipe_of_a_process": INPUT,
    "imap_of_a_pool": INPUT,
    "map_of_a_pool": INPUT,
    "map_of_an_executor": INPUT,
    "result_of_a_process": INPUT,
    "queue_of_two_threads": INPUT,
}


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen("python_waits", EXPECTED)


@pytest.mark.parametrize("function", EXPECTED)
def test_a_wait_has_its_cause_and_no_other(seen: Seen, function: str) -> None:
    assert EXPECTED[function] in seen.causes(function)
    assert seen.causes(function) <= {EXPECTED[function], None}


def test_what_no_stack_shows_has_no_cause() -> None:
    functions = ("queue_of_one_thread", "result_of_a_thread", "generator", "queue_of_a_server")
    seen = Seen("innocent_waits", dict.fromkeys(functions))

    assert {name: seen.causes(name) for name in functions} == {name: {None} for name in functions}
