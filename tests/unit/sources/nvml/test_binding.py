"""Specification of the NVML binding: opening the library, and what is said when it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.binding import CallAccounts, NvmlLibrary
from gpumon.sources.nvml.codes import FUNCTION_NOT_FOUND, SUCCESS, code_name
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import DRIVER_NOT_LOADED, UNKNOWN, VERSION_MISMATCH, FakeNvml
from tests.needs import without_driver

OPEN = "from gpumon.sources.nvml.binding import NvmlLibrary; NvmlLibrary()"


def last_line_of(words: str, environ: dict[str, str]) -> str:
    """The end of what a fresh interpreter complains about."""
    ended = subprocess.run(
        [sys.executable, "-c", words], env=environ, capture_output=True, text=True, timeout=60
    )
    return (ended.stdout + ended.stderr).splitlines()[-1]


class TestALibraryThatCannotBeOpened:
    def test_is_named_when_it_is_missing(self) -> None:
        said = last_line_of(OPEN, without_driver())

        assert "SourceUnavailableError: libnvidia-ml.so.1 was not found: install" in said

    @pytest.mark.parametrize(
        ("code", "advice"),
        [
            (VERSION_MISMATCH, "reboot or reload the driver"),
            (DRIVER_NOT_LOADED, "modprobe nvidia"),
            (UNKNOWN, "dmesg"),
            (17, "/dev/nvidia"),
            (4, "/dev/nvidiactl"),
        ],
    )
    def test_says_what_to_do(self, fake_nvml: FakeNvml, code: int, advice: str) -> None:
        fake_nvml.fail("nvmlInitWithFlags", code)

        with pytest.raises(SourceUnavailableError, match=advice):
            NvmlLibrary()

    def test_gives_the_code_where_there_is_no_advice(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.fail("nvmlInitWithFlags", 20)

        with pytest.raises(SourceUnavailableError, match=r"\(20\)"):
            NvmlLibrary()

    def test_counts_as_an_error_of_that_call(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.fail("nvmlInitWithFlags", UNKNOWN)
        accounts = CallAccounts()

        with pytest.raises(SourceUnavailableError):
            NvmlLibrary(accounts)

        assert accounts.so_far()["call_errors"] == (("nvmlInitWithFlags", UNKNOWN, 1),)

    def test_can_be_opened_once_the_reason_is_gone(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.fail("nvmlInitWithFlags", VERSION_MISMATCH)
        with pytest.raises(SourceUnavailableError):
            NvmlLibrary()

        fake_nvml.fail("nvmlInitWithFlags", 0)

        assert NvmlLibrary().device_count() == 2


class TestAnOpenLibrary:
    @pytest.mark.parametrize(
        ("listed", "asked"), [(1_024, 1_024), (1_025, 1_024), (2**32 - 1, 1_024)]
    )
    def test_counts_no_more_gpus_than_a_machine_can_have(
        self, monkeypatch: pytest.MonkeyPatch, library: NvmlLibrary, listed: int, asked: int
    ) -> None:
        def answer(name: str, where: Any) -> int:
            where._obj.value = listed
            return SUCCESS

        monkeypatch.setattr(library, "ask", answer)

        assert library.device_count() == asked

    def test_is_closed_once_however_often_it_is_asked(self, fake_nvml: FakeNvml) -> None:
        library = NvmlLibrary()

        library.close()
        library.close()

        assert fake_nvml.calls("nvmlShutdown") == 1

    def test_can_be_closed_when_the_driver_is_gone(self, fake_nvml: FakeNvml) -> None:
        library = NvmlLibrary()
        fake_nvml.reload_driver()

        library.close()

        assert fake_nvml.calls("nvmlShutdown") == 1

    def test_leaves_the_functions_of_pynvml_as_they_are(self, fake_nvml: FakeNvml) -> None:
        import pynvml

        library = NvmlLibrary()
        library.handle_by_index(0)

        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetUUID(handle) == fake_nvml.uuid(1)

    def test_finds_a_gpu_by_its_uuid(self, fake_nvml: FakeNvml) -> None:
        library = NvmlLibrary()

        assert library.handle_by_uuid(fake_nvml.uuid(1)) == library.handle_by_index(1)
        assert library.handle_by_uuid("GPU-of-somebody-else") is None

    def test_says_that_a_function_is_missing_by_a_code(self, tmp_path: Path) -> None:
        build_fake(tmp_path, without=("nvmlDeviceGetTotalEnergyConsumption",))
        with FakeNvml(tmp_path / "control") as fake:
            said = last_line_of(
                f"{OPEN}\nprint(NvmlLibrary().function('nvmlDeviceGetTotalEnergyConsumption')())",
                fake_env(fake.path, tmp_path),
            )

        assert said == str(FUNCTION_NOT_FOUND)


class TestTextFromTheDriver:
    def test_is_given_as_it_is(self, fake_nvml: FakeNvml) -> None:
        assert NvmlLibrary().driver_version == "580.95.05"

    def test_that_is_not_utf_8_is_replaced(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).name = b"Tesla \xff\xfe"
        fake_nvml.gpu(0).bus_id = b"0000\xff:3B:00.0"
        library = NvmlLibrary()
        handle = library.handle_by_index(0)
        assert handle is not None

        assert library.text("nvmlDeviceGetName", handle) == "Tesla \ufffd\ufffd"
        assert library.pci_bus_id(handle) == "0000\ufffd:3B:00.0"


class TestAProcessName:
    def test_is_given_as_it_is(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.run(0, 4000, name=b"/usr/bin/python3")

        assert NvmlLibrary().process_name(4000) == "/usr/bin/python3"

    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            (b"tr\xe4in", "tr\ufffdin"),
            (b"two\nlines", "two\ufffdlines"),
            ("\u202eevil".encode(), "\ufffdevil"),
            (b"x" * 1000, "x" * 128),
        ],
    )
    def test_is_made_printable_and_short(self, fake_nvml: FakeNvml, raw: bytes, shown: str) -> None:
        fake_nvml.run(0, 4000, name=raw)

        assert NvmlLibrary().process_name(4000) == shown

    def test_of_a_process_that_nobody_knows_is_no_answer(self, fake_nvml: FakeNvml) -> None:
        assert NvmlLibrary().process_name(1) is None


def test_a_code_is_named_in_words() -> None:
    assert code_name(15) == "GPU is lost (15)"
    assert code_name(4711).endswith("(4711)")
