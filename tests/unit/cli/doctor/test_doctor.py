"""Specification of the doctor: what it says of the GPUs and their driver, and what to do."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli.doctor import doctor
from gpumon.cli.doctor.driver import driver_findings
from gpumon.cli.doctor.findings import BROKEN, MACHINE, MISSING, Finding, render_findings
from gpumon.cli.main import main
from gpumon.errors import SourceUnavailableError
from gpumon.outlets.text.style import TextStyle, style_for
from gpumon.sources.installed import DriverFiles
from gpumon.sources.nvml.probe.probed import ProbedDriver
from tests.fakenvml.control import NO_PERMISSION, NOT_SUPPORTED, FakeNvml

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
FILES = DriverFiles(
    module_version="580.95.05",
    profiling_needs_root=True,
    nodes=("/dev/nvidia0", "/dev/nvidiactl"),
    refused=(),
)
NO_DAEMON = Finding(
    what="daemon", status=MISSING, detail="none is running", fix="start one: gpumon serve",
    group=MACHINE,
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_LOOKS", 2)
    monkeypatch.setattr("gpumon.sources.nvml.probe.probe.GPM_APART_S", 0.101)
    monkeypatch.setattr(doctor, "_BETWEEN_LOOKS_NS", 180_000_000)
    monkeypatch.setattr(doctor, "read_driver_files", lambda: FILES)
    monkeypatch.setattr(doctor, "machine_findings", lambda **_: [NO_DAEMON])
    monkeypatch.setenv("NO_COLOR", "1")


def text_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(["doctor", *words])
    return capsys.readouterr().out


def document_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    document = json.loads(text_of(capsys, "--json", *words))
    assert isinstance(document, dict)
    return document


def findings_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in document_of(capsys, *words)["findings"]}


def without_figures(text: str) -> str:
    """What differs from run to run masked: prices and counts. Columns stay where they are."""
    price = r"(tick|\d+ s|waits)( +(?:\S+ [um]s|-) +(?:< )?(?:\S+ %|-))(?=  \S)"
    text = re.sub(price, lambda found: found[1] + "PRICE".rjust(len(found[2])), text)
    text = re.sub(r"\d+ samples, \d+ ms each:[^✓]*", "N samples, N ms each ...\n  ", text)
    return re.sub(r"(time in NVML) [^!]*?\n\n", r"\1 ...\n\n", text)


class TestTheTable:
    def test_of_two_boards_is_the_golden_file(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.draw(0, busy_watts=0)  # so that no energy is used meanwhile
        fake_nvml.run(0, 4711)
        fake_nvml.run(1, 4712)
        fake_nvml.fail("nvmlDeviceGetTotalEccErrors", NOT_SUPPORTED)
        fake_nvml.gpu(0).persistence_mode = fake_nvml.gpu(1).persistence_mode = 0

        text = without_figures(text_of(capsys))

        path = GOLDEN / "doctor_two_boards.txt"
        if os.environ.get("GPUMON_UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), "run: make golden"

    def test_fits_a_terminal_of_80_columns_and_is_aligned(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.fail("nvmlDeviceGetPowerUsage", NO_PERMISSION)
        fake_nvml.delay("nvmlDeviceGetComputeRunningProcesses_v3", 4_500)

        lines = text_of(capsys).splitlines()

        assert max(len(line) for line in lines) <= 80
        (says_at,) = {line.index("what it says") for line in lines if "what it says" in line}
        rows = [line for line in lines if re.match(r"  \S \w.* (tick|5 s) ", line)]
        assert len(rows) > 8
        assert {line[says_at - 2 : says_at] for line in rows} == {"  "}
        assert all(line[says_at] != " " for line in rows)

    def test_shows_boards_that_answer_alike_once(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.reorder(range(8))
        fake_nvml.fail("nvmlDeviceGetPerformanceState", NOT_SUPPORTED, gpu=5)

        text = text_of(capsys, "--nvml-off", "activity")

        assert text.count("what it says") == 2
        assert "GPU 1-4 and 6-7: the same; what follows are the values of GPU 0" in text
        assert "nvmlDeviceGetPerformanceState" in text[text.index("GPU 5: ") :]

    def test_names_opt_in_fields_with_the_price_that_is_quoted(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = " ".join(text_of(capsys).split())

        assert "pcie (40 ms are quoted where the driver does not count bytes)" in text
        assert "--nvml-on FIELD,..." in text

    def test_uses_ascii_where_the_terminal_has_no_more(
        self, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        plain = style_for(io.TextIOWrapper(io.BytesIO(), encoding="ascii"), {})
        monkeypatch.setattr(doctor, "style_for", lambda stream, environ: plain)

        assert text_of(capsys).isascii()


class TestPrices:
    def test_of_a_field_are_what_the_driver_takes(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.delay("nvmlDeviceGetTotalEnergyConsumption", 20_000)

        energy = findings_of(capsys)["gpu 0 energy"]

        assert 20_000 <= energy["reading_microseconds"] < 100_000
        assert energy["period_seconds"] == 5.0
        assert 0.004 <= energy["seconds_per_second"] < 0.02

    def test_of_an_opt_in_field_are_measured_where_it_is_asked_for(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.fail("nvmlDeviceGetFieldValues", NOT_SUPPORTED)
        fake_nvml.delay("nvmlDeviceGetPcieThroughput", 20_000)

        found = findings_of(capsys, "--nvml-on", "pcie,fan")

        assert found["gpu 0 pcie"]["reading_microseconds"] >= 40_000
        assert found["gpu 0 fan"]["status"] == "ok"

    def test_that_trainings_may_feel_come_with_what_to_leave_out(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.delay("nvmlDeviceGetTotalEnergyConsumption", 40_000)

        cost = findings_of(capsys, "--nvml-off", "activity")["time in NVML"]

        assert cost["status"] == "missing"
        assert "--nvml-off energy" in cost["fix"]


class TestTheFixes:
    def test_come_once_each_with_what_is_broken_first(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.reorder(range(4))
        fake_nvml.lose(2)
        for slot in range(4):
            fake_nvml.gpu(slot).persistence_mode = 0

        text = text_of(capsys)
        fixes = " ".join(text[text.index("\nFix\n") :].split())

        assert "1. GPU 2: look for Xid 79" in fixes
        assert "2. GPU 0-1 and 3 persistence mode: sudo nvidia-smi -pm 1" in fixes
        assert "daemon: start one: gpumon serve" in fixes

    def test_name_eight_boards(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.reorder(range(16))
        for slot in range(0, 16, 2):
            fake_nvml.gpu(slot).persistence_mode = 0

        fixes = " ".join(text_of(capsys, "--nvml-off", "activity").split())

        assert "GPU 0, 2, 4, 6, 8, 10, 12 and 14 persistence mode: sudo" in fixes

    def test_of_gpm_name_the_switch_only_where_the_driver_says_that_it_is_on(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        harmless = findings_of(capsys)["profiling"]
        fake_nvml.fail("nvmlGpmSampleGet", NO_PERMISSION)
        found = findings_of(capsys)

        assert (harmless["status"], harmless["fix"]) == ("ok", None)
        assert found["gpu 0 activity"]["fix"].startswith("run gpumon as root")
        assert "NVreg_RestrictProfilingToAdminUsers=0" in found["profiling"]["fix"]


class TestAGpuThatIsListedAndCannotBeRead:
    def test_is_broken_where_it_was_lost(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.lose(1)

        found = findings_of(capsys, "--nvml-off", "activity")["gpu 1"]

        assert (found["status"], found["detail"]) == ("broken", "the GPU is lost (NVML 15)")

    def test_is_only_missing_where_it_is_somebody_elses(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.lose(1, NO_PERMISSION)

        found = findings_of(capsys, "--nvml-off", "activity")

        assert found["gpu 1"]["status"] == "missing"
        assert "trouble" not in found


class TestMig:
    def test_leaves_utilisation_to_the_instances_and_says_so(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.cut(0, 2)

        found = findings_of(capsys, "--nvml-off", "activity")

        assert found["gpu 0 utilisation"]["detail"] == "with MIG on, only its instances have one"
        assert found["gpu 0 utilisation"]["fix"] is None
        assert found["gpu 0 mig"]["detail"] == "on, 2 instances"
        assert found["gpu source"]["detail"] == "nvml: 2 GPUs and 2 MIG instances, 4 can be read"
        assert "memory" in found["gpu 0:1 memory"]["what"]
        assert "see GPU 0" in found["gpu 0:1 not its own"]["detail"]


class TestUtilisation:
    def test_that_nothing_tells_is_told_with_what_the_driver_answers(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.fail("nvmlDeviceGetSamples", NO_PERMISSION, gpu=0)
        fake_nvml.fail("nvmlDeviceGetUtilizationRates", NO_PERMISSION, gpu=0)

        found = findings_of(capsys, "--nvml-off", "activity")["gpu 0 utilisation"]

        assert found["status"] == "missing"
        assert "not permitted for this user: nvmlDeviceGetSamples" in found["detail"]
        assert "/dev/nvidia*" in found["fix"]


class TestForScripts:
    def test_the_schema_keeps_what_it_had(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        document = document_of(capsys)
        names = {found["name"] for found in document["findings"]}

        assert document["schema"] == "gpumon.doctor/1"
        assert {"version", "python"} <= document.keys()
        assert all(
            {"name", "status", "detail", "fix"} <= one.keys() for one in document["findings"]
        )
        assert {
            "gpu source", "gpu 0", "gpu 0 utilisation", "gpu 0 memory", "gpu 0 power",
            "gpu 0 temperature", "gpu 0 sm clock", "gpu 0 energy", "gpu 1 processes", "daemon",
        } <= names  # fmt: skip

    def test_every_call_is_there_with_its_answer_and_times(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gpu = document_of(capsys)["driver"]["gpus"][0]
        (power,) = [field for field in gpu["fields"] if field["name"] == "power"]

        assert gpu["rings"][1]["cadence_s"] == pytest.approx(1 / 6, abs=0.001)
        assert power["calls"][0]["code"] == 0
        assert power["calls"][0]["calls"] == 5
        assert (
            0
            < power["calls"][0]["median_microseconds"]
            <= (power["calls"][0]["worst_microseconds"])
        )


class TestASourceThatIsNoDriver:
    def test_without_its_file_is_told_with_who_has_to_write_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = findings_of(capsys, "--source", f"follow:{tmp_path / 'busy.jsonl'}")

        assert "is not there" in found["busy spans"]["detail"]
        assert "let the training write" in found["busy spans"]["fix"]

    def test_is_told_of_without_prices(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = text_of(capsys, "--source", "simulated:healthy")

        assert "the GPUs of simulated:healthy are made up" in text
        assert "takes" not in text
        assert "kernel module" not in text

    def test_and_is_a_recording_is_refused_as_a_usage(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["doctor", "--source", "replay:night.gpumon"]) == 2
        said = capsys.readouterr().err
        assert "is a recording" in said
        assert "`gpumon replay " in said


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

    def test_is_given_up_when_it_does_not_answer(self) -> None:
        never = threading.Event()

        def hang(beat: doctor.Beat) -> int:
            beat("GPU 3: nvmlDeviceGetPowerUsage")
            never.wait(30)
            return 0

        with pytest.raises(SourceUnavailableError, match="GPU 3: nvmlDeviceGetPowerUsage"):
            doctor.patiently(hang, patience_s=0.3)
        never.set()


class TestAGpuInTrouble:
    def test_is_broken_by_what_slows_it_down_and_by_errors_of_its_memory(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.throttle(1, 0x80)
        fake_nvml.report_ecc(0, uncorrected=True)

        found = findings_of(capsys)

        assert found["gpu 1 throttled"]["status"] == BROKEN
        assert "the machine's power supply" in found["gpu 1 throttled"]["detail"]
        assert found["gpu 1 throttled"]["fix"].startswith("look at the machine's power supplies")
        assert found["gpu 0 ECC"]["detail"].startswith("met an error of its memory")
        assert "gpu 0 throttled" not in found

    def test_is_none_at_its_power_limit(
        self, fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake_nvml.throttle(1, 0x04)

        assert "gpu 1 throttled" not in findings_of(capsys)


@pytest.mark.parametrize(("init_s", "is_slow"), [(0.2, False), (1.0, False), (1.01, True)])
def test_a_driver_that_opens_slowly_is_told(init_s: float, *, is_slow: bool) -> None:
    probed = ProbedDriver("580.95.05", "13.580", "13.0", stamp_clock=None, init_s=init_s)

    told = [one.detail for one in driver_findings(FILES, probed, ()) if one.name == "start"]

    assert told == ["opening NVML took 1.0 s"] * is_slow


def test_a_very_slow_reading_is_told_in_decimals() -> None:
    board = Finding(detail="A board", gpu="0")
    slow = replace(
        board, what="power", detail="97 W", period_seconds=60.0,
        reading_microseconds=1_234_567.0, seconds_per_second=1.2,
    )  # fmt: skip

    text = "\n".join(render_findings([board, slow], TextStyle()))

    assert " ".join(text.split()).endswith("power 60 s 1,230 ms 120 % 97 W")
