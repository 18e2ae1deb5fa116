"""A program that may hang is ended, and what it has said by then is not lost."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools import run_gpu_tests
from tests.tools.run_gpu_tests import code_within

HANGS = "import time; time.sleep(60)"
HANGS_ON = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {HANGS}"
SAYS_WHAT_IT_HAS = f"""
import sys
try:
    {HANGS}
except KeyboardInterrupt:
    open("said", "w").write("so far")
    sys.exit(2)
"""


def code_of(program: str, folder: Path, limit_s: float | None) -> int:
    # Without what an environment has imported at the start: it takes its time on a busy machine.
    return code_within(limit_s, [sys.executable, "-I", "-S", "-c", program], folder)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


class TestAProgram:
    @pytest.mark.parametrize("limit_s", [None, 60.0])
    def test_that_ends_in_time_gives_its_own_code(
        self, tmp_path: Path, limit_s: float | None
    ) -> None:
        assert code_of("raise SystemExit(5)", tmp_path, limit_s) == 5

    @pytest.mark.parametrize("of_the_caller", [signal.default_int_handler, signal.SIG_IGN])
    def test_that_takes_too_long_may_say_what_it_has(
        self, of_the_caller: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        signal.signal(signal.SIGINT, of_the_caller)  # ignored: as where it was started with &
        # Long enough for an interpreter to start on a machine that is busy.
        assert code_of(SAYS_WHAT_IT_HAS, tmp_path, 4.0) == 2
        assert (tmp_path / "said").read_text() == "so far"
        assert " 4 s " in capsys.readouterr().err

    def test_that_does_not_even_then_end_is_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run_gpu_tests, "TAKEN_DOWN_S", 0.2)

        assert code_of(HANGS_ON, tmp_path, 2.0) == 1
