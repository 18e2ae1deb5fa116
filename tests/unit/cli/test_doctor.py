"""Specification of what the doctor says of a source that cannot be read."""

from __future__ import annotations

import json

import pytest

from gpumon.cli import doctor
from gpumon.cli.main import main
from gpumon.errors import SourceUnavailableError


class TestASourceThatCannotBeRead:
    @pytest.mark.parametrize(
        ("error", "detail", "fix"),
        [
            ("the driver hangs: reboot", "the driver hangs", "reboot"),
            ("the driver hangs", "the driver hangs", "see nvidia-smi and dmesg"),
        ],
        ids=["with a remedy", "without one"],
    )
    def test_is_named_once_and_what_to_do_beside_it(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        error: str,
        detail: str,
        fix: str,
    ) -> None:
        def refuse(word: str, clock: object) -> None:
            raise SourceUnavailableError(error)

        monkeypatch.setattr(doctor, "open_source", refuse)

        assert main(["doctor", "--json"]) == 3

        found = json.loads(capsys.readouterr().out)["findings"][0]
        assert (found["detail"], found["fix"]) == (detail, fix)
