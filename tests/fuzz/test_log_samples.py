"""`gpumon analyze` of damaged logs: a report whose sums close or a sentence, and soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.command_output import check_output, command_output
from tests.fuzz.figures import check_report, parsed
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations_of_logs import mutated_log
from tests.logs.test_samples import SAMPLES
from tests.patience import no_hang

_MOST_GROWTH_KIB = 65_536
"""Inputs are up to 1 MiB, and what one needs the next may find in other places of the heap."""
_WORDS = (
    (), (), (), (), (), (), ("--period", "1"), ("--period", "0.001"), ("--period", "86400"),
    ("--column", "utilization.gpu=2"), ("--column", "timestamp=1"), ("--column", "index=300"),
)  # fmt: skip
"""Words after the file; mostly none."""


class TestADamagedLog:
    @for_seconds_and_minutes()
    def test_is_a_report_or_a_sentence(self, tmp_path: Path, seconds: float) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), analyze, most_kib=_MOST_GROWTH_KIB)

    def test_is_so_for_the_real_command_too(self, tmp_path: Path) -> None:
        for number, case in enumerate(Fuzz(tmp_path, 2.0).cases()):
            log = tmp_path / f"{number}.log"
            with case:
                log.write_bytes(case.tries(mutated_log(case.random, SAMPLES)))
                done = subprocess.run(
                    [sys.executable, "-m", "gpumon", "analyze", str(log)],
                    stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
                )  # fmt: skip
                check_output(done.returncode, done.stdout.decode(), done.stderr.decode())
            log.unlink()


def analyze(case: Case) -> None:
    log = case.folder / "gpu.log"
    log.write_bytes(case.tries(mutated_log(case.random, SAMPLES)))
    words = case.random.choice(_WORDS)
    with no_hang():
        code, out, err = command_output("analyze", "--json", str(log), *words)
    check_output(code, out, err)
    for report in reports_in(out):
        check_report(report)
    if case.random.random() < 0.2:
        picture = case.folder / "picture.html"
        drawn = ("--html", str(picture)) if case.random.random() < 0.5 else ()
        with no_hang():
            check_output(*command_output("analyze", str(log), *words, *drawn))


def reports_in(out: str) -> list[dict[str, Any]]:
    """Each of the reports that were printed."""
    document = parsed(out) if out else []
    return document if isinstance(document, list) else [document]
