"""Specification of logs in a bad state: a sentence or a report of what is there, no traceback.

The sentences are in ``tests/golden``.
"""

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
    series = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": str(gpu), "pod": 'a{"['},
            "values": [[1_780_000_000 + at, str(90 + at % 7)] for at in range(rows)],
        }
        for gpu in range(2)
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": series}, **more}


def reading(at: int) -> dict[str, Any]:
    gpu = {"index": 0, "name": "A40", "utilization.gpu": 90, "memory.used": 1, "memory.total": 2}
    return {"hostname": "n1", "query_time": f"2026-05-11T14:00:{at:02d}.5", "gpus": [gpu]}


PACKED = gzip.compress(smi_log([at * 7919 % 101 for at in range(20_000)]).encode())
WHOLE = {
    "Prometheus": json.dumps(answer()),
    "pretty": json.dumps(answer(15, warnings=["a } in {{ a text"]), indent=1),
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
READ_SO_FAR = ("series alone", "gpustat", "a list", "W&B")


def observed(path: Path) -> tuple[float, int]:
    """Seconds observed, and lines that were not used."""
    report = analyse_file(str(path), NO_OPTIONS)
    return report.observed_ns / 1e9, report.skipped_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpu.csv"


class TestALogThatBreaksOff:
    @pytest.mark.parametrize(
        ("whole", "least_s", "most_s"),
        [pytest.param(PACKED, 12_000, 17_000, id="gzip"),
         *(pytest.param(WHOLE[name].encode(), 1, 41, id=name) for name in READ_SO_FAR)],
    )  # fmt: skip
    def test_is_reported_as_far_as_it_goes_and_fails(
        self, path: Path, gpumon: Shell, whole: bytes, least_s: float, most_s: float
    ) -> None:
        path.write_bytes(whole[: len(whole) * 3 // 4 - 20])

        ended = gpumon("analyze", "--json", path)

        assert ended.code == 1
        assert ended.is_refused_in_a_sentence
        assert least_s <= ended.document["observed_seconds"] < most_s
        assert ended.err.strip().removeprefix("gpumon: ") in " ".join(ended.document["notes"])

    @pytest.mark.parametrize("name", ["Prometheus", "pretty"])
    def test_is_refused_where_it_is_one_answer_which_can_be_asked_for_again(
        self, name: str
    ) -> None:
        whole = WHOLE[name]
        for end in range(whole.index('"values"') + 60, len(whole) - 2, 29):
            with pytest.raises(UnreadableLogError, match="ask Prometheus again"):
                read_log(whole[:end])

    def test_is_none_where_it_is_still_written(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path.write_text(WHOLE["gpustat"][:-30])
        monkeypatch.setattr(LogText, "has_grown", lambda _: True)

        assert read_file(str(path), NO_OPTIONS).damage is None


class TestJsonThatIsWhole:
    @pytest.mark.parametrize("whole", WHOLE.values(), ids=WHOLE)
    def test_is_said_to_be(self, whole: str) -> None:
        for log in (whole, whole + "\n\n", whole + "\n" + whole):
            assert read_log(log)[1].broken_off is None

    def test_although_an_answer_before_it_was_cut(self) -> None:
        whole = WHOLE["Prometheus"]

        assert read_log(whole[:-40] + "\n" + whole)[1].broken_off is None


class TestAFileThatGrowsWhileItIsRead:
    def test_is_read_as_it_was_opened(self, path: Path) -> None:
        path.write_text(smi_log([5] * 100))

        with LogText(str(path)) as text, path.open("a") as log:
            lines = text.lines()
            first = next(lines)
            log.write(rows(*(f"{smi_stamp(at)}, 0, A40, 5 %, 1" for at in range(101, 9_000))))
            log.flush()

            assert [first, *lines] == smi_log([5] * 100).splitlines(keepends=True)

    def test_ends_with_its_last_whole_line(self, path: Path) -> None:
        path.write_text("time,util\n1,97\n2,9")

        with LogText(str(path)) as text:
            with path.open("a") as log:
                log.write("7\n")

            assert list(text.lines()) == ["time,util\n", "1,97\n"]

    def test_by_another_thread_ends(self, path: Path) -> None:
        path.write_text(smi_log([5] * 2_000))
        stop = threading.Event()

        def write_on() -> None:
            with path.open("a") as log:
                at = 2_000
                while not stop.is_set():
                    at += 1
                    log.write(f"{smi_stamp(at)}, 0, NVIDIA A40, 5 %, 1830 MiB\n")
                    log.flush()

        writer = threading.Thread(target=write_on)
        writer.start()
        try:
            seconds, skipped = observed(path)
        finally:
            stop.set()
            writer.join()

        assert seconds >= 2_000
        assert skipped == 0


class TestAPipe:
    def test_with_a_name_is_read_to_its_end(self, path: Path) -> None:
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_text(smi_log([5] * 30)))
        writer.start()
        try:
            assert observed(path) == (30.0, 0)
        finally:
            writer.join()

    def test_whose_writer_dies_in_a_line_is_read_up_to_it(self, gpumon: Shell) -> None:
        log = smi_log([5] * 30) + smi_stamp(31)[:12]

        ended = gpumon("analyze", "--json", "-", stdin=log.encode())

        assert (ended.code, ended.document["observed_seconds"]) == (0, 30.0)
        assert ended.document["skipped_lines"] == 1


class TestAName:
    def test_that_is_no_text_is_printed_all_the_same(self, tmp_path: Path) -> None:
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
    def test_of_a_file_that_may_not_be_read_is_a_sentence(self, path: Path, gpumon: Shell) -> None:
        path.write_text(smi_log([5]))
        path.chmod(0)

        assert gpumon("analyze", path).is_refused_in_a_sentence


class TestBytesThatDoNotBelong:
    def test_zeros_of_a_crash_cost_the_lines_they_are_in(self, path: Path) -> None:
        log = smi_log([5] * 200).encode()
        path.write_bytes(log + smi_stamp(201)[:9].encode() + b"\0" * 4096 + b"\n"
                         + smi_log([0] * 201).encode().splitlines()[-1] + b"\n")  # fmt: skip

        assert observed(path) == (201.0, 1)

    def test_zeros_among_the_first_lines_are_no_binary(self, path: Path) -> None:
        path.write_bytes(smi_log([5] * 200).encode().replace(b"\n2025", b"\n\0\0002025", 3))

        assert observed(path)[0] == 200.0

    @pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
    def test_line_ends_of_any_kind_and_mixed_end_lines(self, path: Path, end: str) -> None:
        first, rest = smi_log([5] * 40).split("\n", 1)
        path.write_bytes((first + "\n" + rest.replace("\n", end)).encode())

        assert observed(path) == (40.0, 0)
