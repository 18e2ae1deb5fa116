"""`gpumon analyze` of damaged logs: a report whose sums close or a sentence, and soon."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pytest

from gpumon.cli.main import main
from tests.fuzz.fuzzing import CI_SECONDS, SOAK_SECONDS, Fuzz, Growth
from tests.fuzz.mutations_of_logs import mutated_log
from tests.logs.test_samples import SAMPLES
from tests.patience import no_hang

_MOST_GROWTH_KIB = 65_536
"""Inputs are up to 1 MiB, and what one needs the next may find in other places of the heap."""
_WORDS = (
    (), (), (), (), (), (), ("--period", "1"), ("--period", "0.001"), ("--period", "86400"),
    ("--column", "utilization.gpu=2"), ("--column", "timestamp=1"), ("--column", "index=300"),
)  # fmt: skip
_SENTENCE = re.compile(r"(gpumon: [^\n]+\n)+")
_RATIOS = re.compile(r"_(ratio|probability)$")


def words_of(random: Random) -> tuple[str, ...]:
    """Words after the file; mostly none."""
    return random.choice(_WORDS)


class TestADamagedLog:
    def test_is_a_report_or_a_sentence(self, tmp_path: Path) -> None:
        fuzz_logs(Fuzz(tmp_path, CI_SECONDS))

    @pytest.mark.soak
    def test_is_a_report_or_a_sentence_for_minutes(self, tmp_path: Path) -> None:
        fuzz_logs(Fuzz(tmp_path, SOAK_SECONDS))

    def test_is_so_for_the_real_command_too(self, tmp_path: Path) -> None:
        for number, case in enumerate(Fuzz(tmp_path, 2.0).cases()):
            log = tmp_path / f"{number}.log"
            with case:
                log.write_bytes(case.tries(mutated_log(case.random, SAMPLES)))
                done = subprocess.run(
                    [sys.executable, "-m", "gpumon", "analyze", str(log)],
                    stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
                )  # fmt: skip
                check_said(done.returncode, done.stdout.decode(), done.stderr.decode())
            log.unlink()


def fuzz_logs(fuzz: Fuzz) -> None:
    growth = Growth(os.getpid(), most_kib=_MOST_GROWTH_KIB)
    for case in fuzz.cases():
        with case:
            log = case.folder / "gpu.log"
            log.write_bytes(case.tries(mutated_log(case.random, SAMPLES)))
            words = words_of(case.random)
            with no_hang():
                code, out, err = said("analyze", "--json", str(log), *words)
            check_said(code, out, err)
            for report in reports_in(out):
                check_report(report)
            if case.random.random() < 0.2:
                picture = case.folder / "picture.html"
                drawn = ("--html", str(picture)) if case.random.random() < 0.5 else ()
                with no_hang():
                    check_said(*said("analyze", str(log), *words, *drawn))
        if fuzz.spent > 0.3:
            growth.warm()
    growth.check()


def said(*words: str) -> tuple[int, str, str]:
    """What the command says in this process: its code, its output, its complaint."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def check_said(code: int, out: str, err: str) -> None:
    assert code in (0, 1, 2), (code, err)
    assert "Traceback" not in err
    assert out or err
    if code == 0:
        assert err == ""
    else:
        assert _SENTENCE.fullmatch(err), err
    out.encode()  # no lone surrogate, which a terminal's encoding would refuse


def reports_in(out: str) -> list[dict[str, Any]]:
    document = json.loads(out, parse_constant=_refuse) if out else []
    return document if isinstance(document, list) else [document]


def _refuse(word: str) -> NoReturn:
    raise AssertionError(f"{word} in a report")


def check_report(report: dict[str, Any]) -> None:
    """The sums close, and no figure is impossible."""
    assert report["gpus"]
    for gpu in report["gpus"]:
        observed_s, idle_s = gpu["observed_seconds"], gpu["idle_seconds"]
        assert close(gpu["busy_seconds"] + idle_s + gpu["pending_seconds"], observed_s)
        assert close(sum(gpu["idle_by_cause"].values()), idle_s)
        assert gpu["suspected_seconds"] + gpu["starved_seconds"] <= idle_s + 1e-6
        assert observed_s <= report["observed_seconds"] + 1e-6
    check_figures(report, "")


def close(one_s: float, other_s: float) -> bool:
    return math.isclose(one_s, other_s, abs_tol=1e-6, rel_tol=1e-9)


def check_figures(value: object, name: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            check_figures(inner, key)
    elif isinstance(value, list):
        for inner in value:
            check_figures(inner, name)
    elif isinstance(value, str):
        assert value.isprintable() or name == "text", (name, value)
    elif isinstance(value, (int, float)):
        assert math.isfinite(value), (name, value)
        assert value >= 0 or name in ("starved_intervals", "mig_index"), (name, value)
        assert value <= 1 + 1e-9 or not _RATIOS.search(name), (name, value)
