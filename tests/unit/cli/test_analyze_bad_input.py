"""Tests of `gpumon analyze` on logs that are incomplete or still written: no traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import (
    NO_OPTIONS,
    analyse_file,
    read_file,
    read_log,
    rows,
    smi_log,
    smi_stamp,
)
from tests.command_line import Shell


def answer(rows: int = 40, **more: Any) -> dict[str, Any]:
    """An answer of Prometheus."""
    series = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": str(gpu), "pod": 'a{"['},
            "values": [[1_780_000_000 + at, str(90 + at % 7)] for at in range(rows)],
        }
        for gpu in range(2)
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": series}, **more}


def reading(at: int) -> dict[str, Any]:
    """A reading of gpustat."""
    gpu = {"index": 0, "name": "A40", "utilization.gpu": 90, "memory.used": 1, "memory.total": 2}
    return {"hostname": "n1", "query_time": f"2026-05-11T14:00:{at:02d}.5", "gpus": [gpu]}


PACKED = gzip.compress(smi_log([at * 7919 % 101 for at in range(20_000)]).encode())
ANSWERS = {
    "Prometheus": json.dumps(answer()),
    "pretty": json.dumps(answer(15, warnings=["a } in {{ a text"]), indent=1),
}
OTHERS = {
    "series alone": json.dumps(answer()["data"]["result"]) + "\n",
    "gpustat": "\n".join(json.dumps(reading(at), indent=2) for at in range(20)),
    "a list": json.dumps([reading(at) for at in range(20)]),
    "W&B": rows(
        *(
            json.dumps({"system.gpu.0.gpu": 90, "_timestamp": 1_780_000_000 + at})
            for at in range(20)
        )
    ),
}
COMPLETE = ANSWERS | OTHERS


def observed(path: Path) -> tuple[float, int]:
    """Seconds observed, and the number of skipped lines."""
    report = analyse_file(str(path), NO_OPTIONS)
    return report.observed_ns / 1e9, report.skipped_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpu.csv"


class TestALogThatIsCutShort:
    @pytest.mark.parametrize(
        ("complete", "least_s", "most_s"),
        [pytest.param(PACKED, 12_000, 17_000, id="gzip"),
         *(pytest.param(log.encode(), 1, 41, id=name) for name, log in OTHERS.items())],
    )  # fmt: skip
    def test_is_reported_up_to_there_and_fails(
        self, path: Path, gpumon: Shell, complete: bytes, least_s: float, most_s: float
    ) -> None:
        path.write_bytes(complete[: len(complete) * 3 // 4 - 20])

        ended = gpumon("analyze", "--json", path)

        assert ended.is_refused_in_a_sentence
        assert least_s <= ended.document["observed_seconds"] < most_s
        assert ended.err.strip().removeprefix("gpumon: ") in " ".join(ended.document["notes"])

    @pytest.mark.parametrize("log", ANSWERS.values(), ids=ANSWERS)
    def test_is_refused_if_it_is_one_answer(self, log: str) -> None:
        for end in range(log.index('"values"') + 60, len(log) - 2, 29):
            with pytest.raises(UnreadableLogError, match="ask Prometheus again"):
                read_log(log[:end])

    def test_is_refused_for_that_if_it_has_no_utilisation_before(self, path: Path) -> None:
        packed = gzip.compress(rows(*(f"note {7**at}" for at in range(200))).encode())
        path.write_bytes(packed[: len(packed) * 3 // 4])

        with pytest.raises(UnreadableLogError, match="cut short or damaged after line"):
            read_file(str(path), NO_OPTIONS)

    def test_does_not_fail_while_it_is_written(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path.write_text(OTHERS["gpustat"][:-30])
        monkeypatch.setattr(LogText, "has_grown", lambda _: True)

        assert read_file(str(path), NO_OPTIONS).damage is None

    @pytest.mark.parametrize("log", COMPLETE.values(), ids=COMPLETE)
    def test_is_not_a_complete_one(self, log: str) -> None:
        for text in (log, log + "\n\n", log + "\n" + log):
            assert read_log(text)[1].broken_off is None

    def test_is_not_one_after_an_answer_that_was_cut_short(self) -> None:
        log = ANSWERS["Prometheus"]

        assert read_log(log[:-40] + "\n" + log)[1].broken_off is None


class TestAFileThatGrowsWhileItIsRead:
    def test_is_read_up_to_the_size_it_had(self, path: Path) -> None:
        path.write_text(smi_log([5] * 100))

        with LogText(str(path)) as text, path.open("a") as log:
            lines = text.lines()
            first = next(lines)
            log.write(rows(*(f"{smi_stamp(at)}, 0, A40, 5 %, 1" for at in range(101, 9_000))))
            log.flush()

            assert [first, *lines] == smi_log([5] * 100).splitlines(keepends=True)

    def test_ends_with_its_last_complete_line(self, path: Path) -> None:
        path.write_text("time,util\n1,97\n2,9")

        with LogText(str(path)) as text:
            with path.open("a") as log:
                log.write("7\n")

            assert list(text.lines()) == ["time,util\n", "1,97\n"]


class TestAPipe:
    def test_with_a_name_is_read_to_its_end(self, path: Path) -> None:
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_text(smi_log([5] * 30)))
        writer.start()
        try:
            assert observed(path) == (30.0, 0)
        finally:
            writer.join()

    def test_whose_writer_died_has_one_skipped_line(self, gpumon: Shell) -> None:
        log = smi_log([5] * 30) + smi_stamp(31)[:12]

        ended = gpumon("analyze", "--json", "-", stdin=log.encode())

        assert (ended.code, ended.document["observed_seconds"]) == (0, 30.0)
        assert ended.document["skipped_lines"] == 1


class TestAFile:
    def test_may_have_a_name_that_is_no_text(self, tmp_path: Path) -> None:
        path, missing = (os.fsencode(tmp_path) + name for name in (b"/gpu\xff.csv", b"/no\xff.csv"))
        with open(path, "w") as log:  # noqa: PTH123  (a path of bytes)
            log.write(smi_log([5] * 30))

        done = subprocess.run(
            [sys.executable, "-m", "gpumon", "analyze", path, missing],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip

        assert done.returncode == 1
        assert done.stdout != b""
        assert done.stderr.count(b"\n") == 1

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_that_may_not_be_read_is_refused(self, path: Path, gpumon: Shell) -> None:
        path.write_text(smi_log([5]))
        path.chmod(0)

        assert gpumon("analyze", path).is_refused_in_a_sentence

    def test_may_have_zeros_of_a_crash(self, path: Path) -> None:
        log, last = smi_log([5] * 200).encode(), smi_log([0] * 201).encode().splitlines()[-1]
        path.write_bytes(log + smi_stamp(201)[:9].encode() + bytes(4096) + b"\n" + last + b"\n")

        assert observed(path) == (201.0, 1)

    @pytest.mark.parametrize("end", ["\r", "\r\n"])
    def test_may_have_mixed_line_ends(self, path: Path, end: str) -> None:
        first, rest = smi_log([5] * 40).split("\n", 1)
        path.write_bytes((first + "\n" + rest.replace("\n", end)).encode())

        assert observed(path) == (40.0, 0)
