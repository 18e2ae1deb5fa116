"""`gpumon analyze` of damaged logs: a report whose sums close, or a sentence, in seconds."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.checks import check_report, checked_output, parsed
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations_of_logs import mutated_log
from tests.logs.test_samples import SAMPLES
from tests.waiting import no_hang

_MOST_GROWTH_KIB = 65_536
"""Inputs are up to 1 MiB, and lie in different places of the heap."""
_OPTIONS = (
    (), (), (), (), (), (), ("--period", "1"), ("--period", "0.001"), ("--period", "86400"),
    ("--column", "utilization.gpu=2"), ("--column", "timestamp=1"), ("--column", "index=300"),
)  # fmt: skip


@for_seconds_and_minutes()
def test_a_damaged_log_is_reported_or_refused(tmp_path: Path, seconds: float) -> None:
    fuzz_here(Fuzz(tmp_path, seconds), analyze, most_kib=_MOST_GROWTH_KIB)


def analyze(case: Case) -> None:
    random, log = case.random, case.folder / "gpu.log"
    log.write_bytes(case.tries(mutated_log(random, SAMPLES)))
    options = random.choice(_OPTIONS)
    with no_hang():
        out = checked_output("analyze", "--json", str(log), *options)
    if out:
        document = parsed(out)
        for report in document if isinstance(document, list) else [document]:
            check_report(report)
    if random.random() < 0.2:
        page = ("--html", str(case.folder / "page.html")) if random.random() < 0.5 else ()
        with no_hang():
            checked_output("analyze", str(log), *options, *page)
