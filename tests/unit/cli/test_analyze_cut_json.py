"""Specification of JSON that breaks off: reported as far as it goes, said, and exit 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import LogText
from tests.builders_logs import read_file as analyse
from tests.builders_logs import read_log
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


WHOLE = [
    pytest.param(json.dumps(answer()), id="Prometheus"),
    pytest.param(json.dumps(answer(15, warnings=["a } in {{ a text"]), indent=1), id="pretty"),
    pytest.param(json.dumps(answer()["data"]["result"]) + "\n", id="series alone"),
    pytest.param("\n".join(json.dumps(reading(at), indent=2) for at in range(20)), id="gpustat"),
    pytest.param(json.dumps([reading(at) for at in range(20)]), id="a list"),
    pytest.param(
        "".join(
            json.dumps({"system.gpu.0.gpu": 90, "_timestamp": 1_780_000_000 + at}) + "\n"
            for at in range(20)
        ),
        id="W&B",
    ),
]


class TestJsonThatBreaksOff:
    @pytest.mark.parametrize("whole", WHOLE)
    def test_is_reported_as_far_as_it_goes_and_fails(
        self, whole: str, tmp_path: Path, gpumon: Shell
    ) -> None:
        path = tmp_path / "gpu.json"
        path.write_text(whole[: len(whole) * 3 // 4 - 20])

        ended = gpumon("analyze", "--json", path)

        assert ended.code == 1
        assert ended.is_refused_in_a_sentence
        assert ended.document["observed_seconds"] > 0
        assert ended.err.strip().removeprefix("gpumon: ") in " ".join(ended.document["notes"])

    @pytest.mark.parametrize("whole", WHOLE[:3])
    def test_is_seen_wherever_it_does(self, whole: str) -> None:
        unseen = []
        for end in range(whole.index('"values"') + 60, len(whole.rstrip()), 3):
            try:
                _, facts = read_log(whole[:end])
            except UnreadableLogError:
                continue
            if facts.broken_off is None:
                unseen.append(whole[:end][-20:])

        assert unseen == []


class TestJsonThatIsWhole:
    @pytest.mark.parametrize("whole", WHOLE)
    def test_is_said_to_be(self, whole: str) -> None:
        for log in (whole, whole + "\n\n", whole + "\n" + whole):
            assert read_log(log)[1].broken_off is None

    def test_although_an_answer_before_it_was_cut(self) -> None:
        whole = json.dumps(answer())

        assert read_log(whole[:-40] + "\n" + whole)[1].broken_off is None


class TestJsonThatIsStillWritten:
    def test_is_read_as_far_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "gpu.json"
        text = "\n".join(json.dumps(reading(at), indent=2) for at in range(20))
        path.write_text(text[:-30])
        monkeypatch.setattr(LogText, "has_grown", lambda _: True)

        assert analyse(str(path), LogOptions()).damage is None
