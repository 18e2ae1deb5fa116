"""Damaged output of py-spy: it is parsed within bounds, or refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from gpumon.sources.host.process_tasks import MAX_THREADS
from gpumon.sources.stacks.py_spy_output import UnreadableOutputError, is_torn, parse_threads
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations import BYTES, LINES, mutated, with_other_value
from tests.unit.sources.stacks.test_py_spy_output import PID, frame, thread
from tests.waiting import no_hang

_CI_SECONDS = 1.5
_MOST_GROWTH_KIB = 32_768
_WHOLE = [
    thread(*(frame(f"f{n}", line=n) for n in range(20)), frame()),
    thread(frame("wait"), frame("Thread._bootstrap"), tid=PID + 1, thread_name="pin memory"),
]


class TestOutputOfPySpy:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_is_parsed_or_refused(self, tmp_path: Path, seconds: float) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), parse, most_kib=_MOST_GROWTH_KIB)


def parse(case: Case) -> None:
    raw = case.tries(an_output(case.random))
    with no_hang():
        try:
            threads = parse_threads(raw, PID)
        except UnreadableOutputError:
            return
    is_torn(threads, PID)
    assert 1 <= len(threads) <= MAX_THREADS
    for one in threads:
        assert len(one.frames) <= 1_000
        texts = [one.name, *(text for found in one.frames for text in found[:2])]
        assert all(text.isprintable() and len(text) <= 1_000 for text in texts)
        numbers = [one.tid, *(found.line for found in one.frames)]
        assert all(number is None or 0 <= number < 1 << 40 for number in numbers)


def an_output(random: Random) -> bytes:
    """Output with damaged bytes, or with other values."""
    whole = json.dumps(_WHOLE, indent=2)
    if random.random() < 0.5:
        return mutated(random, whole.encode(), (*BYTES, *LINES))
    document = json.loads(whole)
    for _ in range(random.choice((1, 1, 3))):
        document = with_other_value(random, document)
    return json.dumps(document).encode()
