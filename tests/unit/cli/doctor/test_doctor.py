"""Tests of the doctor's findings on GPUs and their driver."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli.doctor import doctor
from gpumon.cli.doctor.findings import BROKEN, MACHINE, MISSING, Finding
from gpumon.cli.main import main
from gpumon.errors import SourceUnavailableError
from gpumon.sources.installed import DriverFiles
from tests.builders.driver_faults import DRAIN, RATES, Change, failing, losing
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.golden_files import verify_golden

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
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
SOON = ("--nvml-off", "activity")
"""GPM takes time between its two samples."""


class Doctor:
    """Runs the doctor on the fake GPUs."""

    def __init__(self, fake: FakeNvml, capsys: pytest.CaptureFixture[str]) -> None:
        self.fake, self._capsys = fake, capsys

    def says(self, *words: str) -> str:
        main(["doctor", *words])
        return self._capsys.readouterr().out

    def says_in_one_line(self, *words: str) -> str:
        return " ".join(self.says(*words).split())

    def document(self, *words: str) -> dict[str, Any]:
        document = json.loads(self.says("--json", *words))
        assert isinstance(document, dict)
        return document

    def finds(self, *words: str) -> dict[str, dict[str, Any]]:
        return {found["name"]: found for found in self.document(*words)["findings"]}


@pytest.fixture(autouse=True)
def short_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "READINGS", 3)
    monkeypatch.setattr(doctor, "EVERY_S", 0.18)
    monkeypatch.setattr(doctor, "read_driver_files", lambda: FILES)
    monkeypatch.setattr(doctor, "machine_findings", lambda **_: [NO_DAEMON])
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def it(fake_nvml: FakeNvml, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(fake_nvml, capsys)


def without_figures(text: str) -> str:
    """Mask the costs and counts, which differ from run to run; columns keep their width."""
    price = r"(tick|\d+ s|waits)( +(?:\S+ [um]s|-) +(?:< )?(?:\S+ %|-))(?=  \S)"
    text = re.sub(price, lambda found: found[1] + "PRICE".rjust(len(found[2])), text)
    text = re.sub(r"\d+ samples, \d+ ms each:[^✓]*", "N samples, N ms each ...\n  ", text)
    return re.sub(r"(time in NVML) [^!]*?\n\n", r"\1 ...\n\n", text)


class TestTheTable:
    def test_of_two_boards_is_the_golden_file(self, it: Doctor) -> None:
        it.fake.draw(0, busy_watts=0)  # so that no energy is used meanwhile
        it.fake.run(0, 4711)
        it.fake.run(1, 4712)
        it.fake.fail("nvmlDeviceGetTotalEccErrors", codes.NOT_SUPPORTED)
        it.fake.gpu(0).persistence_mode = it.fake.gpu(1).persistence_mode = 0

        verify_golden("doctor_two_boards.txt", without_figures(it.says()))

    def test_shows_equal_boards_once(self, it: Doctor) -> None:
        it.fake.reorder(range(8))
        it.fake.fail("nvmlDeviceGetPerformanceState", codes.NOT_SUPPORTED, gpu=5)

        text = it.says(*SOON)

        assert text.count("  takes  ") == 2
        assert "GPUs 1\N{EN DASH}4, 6 and 7: " in text
        assert "nvmlDeviceGetPerformanceState" in text[text.index("GPU 5: ") :]


class TestAFinding:
    @pytest.mark.parametrize(
        ("trouble", "name", "status", "detail", "fix"),
        [
            (lambda fake: fake.delay(ENERGY, 100_000),
             "time in NVML", MISSING, "", "--nvml-off energy"),
            (losing(codes.GPU_IS_LOST, 1),
             "gpu 1", BROKEN, r"^the GPU is lost \(NVML 15\)$", "^look for Xid 79"),
            (losing(codes.NO_PERMISSION, 1),  # another user's
             "gpu 1", MISSING, "", ""),
            (failing(codes.NO_PERMISSION, DRAIN, RATES, gpu=0),
             "gpu 0 utilisation", MISSING,
             "not permitted for this user: nvmlDeviceGetSamples", r"/dev/nvidia\*"),
            (lambda fake: fake.throttle(1, 0x80),
             "gpu 1 throttled", BROKEN,
             "the machine's power supply", "^look at the machine's power supplies"),
            (lambda fake: fake.report_ecc(0, uncorrected=True),
             "gpu 0 ECC", BROKEN, "^had an error of its memory", ""),
        ],
    )  # fmt: skip
    def test_names_the_fault_and_its_fix(
        self, it: Doctor, trouble: Change, name: str, status: str, detail: str, fix: str
    ) -> None:
        trouble(it.fake)

        found = it.finds(*SOON)

        assert found[name]["status"] == status
        assert re.search(detail, found[name]["detail"])
        assert re.search(fix, found[name]["fix"] or "")
        assert not {"trouble", "gpu 0 throttled"} & found.keys()

    def test_of_a_partitioned_gpu_leaves_utilisation_to_its_instances(self, it: Doctor) -> None:
        it.fake.cut(0, 2)

        found = it.finds(*SOON)

        assert "MIG" in found["gpu 0 utilisation"]["detail"]
        assert found["gpu 0 utilisation"]["fix"] is None
        assert found["gpu 0 mig"]["detail"] == "on, 2 instances"
        assert re.findall(r"\d", found["gpu source"]["detail"]) == ["2", "2", "4"]
        assert found["gpu 0:1 memory"]["what"] == "memory"
        shared = found["gpu 0:1 not its own"]
        assert "GPU 0" in shared["detail"]


class TestTheFixes:
    def test_are_listed_once_each_broken_things_first(self, it: Doctor) -> None:
        it.fake.reorder(range(4))
        it.fake.lose(2)
        for slot in range(4):
            it.fake.gpu(slot).persistence_mode = 0

        _, _, fixes = it.says_in_one_line().partition(" Fix ")

        _, lost, slow, daemon = re.split(r" ?\d\. (?=GPU|daemon)", f" {fixes}")
        assert re.match("GPU 2: .*Xid 79", lost)
        assert re.match("GPUs 0, 1 and 3 .*nvidia-smi -pm 1", slow)
        assert re.match("daemon: .*gpumon serve", daemon)

    def test_of_gpm_name_the_driver_option_only_if_it_is_set(self, it: Doctor) -> None:
        harmless = it.finds()["profiling"]
        it.fake.fail("nvmlGpmSampleGet", codes.NO_PERMISSION)
        found = it.finds()

        assert (harmless["status"], harmless["fix"]) == ("ok", None)
        assert "as root" in found["gpu 0 activity"]["fix"]
        assert "NVreg_RestrictProfilingToAdminUsers=0" in found["profiling"]["fix"]


class TestForScripts:
    def test_the_findings_keep_their_keys(self, it: Doctor) -> None:
        document = it.document()

        assert document["schema"] == "gpumon.doctor/1"
        assert {"version", "python"} <= document.keys()
        for one in document["findings"]:
            assert {"name", "status", "detail", "fix"} <= one.keys()
        of_a_gpu = "utilisation", "memory", "power", "temperature", "sm clock", "energy"
        names = {"gpu source", "gpu 0", "gpu 1 processes", "daemon"}
        names |= {f"gpu 0 {what}" for what in of_a_gpu}
        assert names <= {found["name"] for found in document["findings"]}

    def test_the_driver_keeps_its_keys(self, it: Doctor) -> None:
        driver = it.document()["driver"]
        gpu = driver["gpus"][0]

        assert {
            "driver_version", "nvml_version", "cuda_version", "stamp_clock", "init_s", "gpus",
        } <= driver.keys()  # fmt: skip
        assert {
            "index", "uuid", "name", "pci_bus_id", "lost", "lost_code", "fields", "rings",
            "has_gpm", "mig_enabled", "mig_instances", "persistence_mode", "event_types",
        } <= gpu.keys()  # fmt: skip
        assert {
            "name", "wanted", "works", "period_seconds", "reading_microseconds",
            "seconds_per_second", "calls",
        } <= gpu["fields"][0].keys()  # fmt: skip
        assert {
            "function", "code", "answer", "meaning", "value", "calls", "median_microseconds",
            "worst_microseconds",
        } <= gpu["fields"][0]["calls"][0].keys()  # fmt: skip
        assert {
            "kind", "name", "code", "answer", "count", "cadence_s", "span_s", "value_type",
            "newest_age_s", "call_us",
        } <= gpu["rings"][0].keys()  # fmt: skip


class TestAnotherSource:
    def test_without_its_file_is_reported(self, it: Doctor, tmp_path: Path) -> None:
        found = it.finds("--source", f"follow:{tmp_path / 'busy.jsonl'}")

        assert "busy.jsonl" in found["busy spans"]["detail"]
        assert "training" in found["busy spans"]["fix"]

    def test_that_is_a_recording_is_a_usage_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--source", "replay:night.gpumon"]) == 2
        printed = capsys.readouterr().err
        assert "`gpumon replay " in printed


class TestASourceThatCannotBeRead:
    @pytest.mark.parametrize(
        ("error", "detail", "fix"),
        [
            ("the driver hangs: reboot", "the driver hangs", "reboot"),
            ("the driver hangs", "the driver hangs", "see nvidia-smi and dmesg"),
        ],
        ids=["with a remedy", "without one"],
    )
    def test_is_reported_with_its_fix(
        self, it: Doctor, monkeypatch: pytest.MonkeyPatch, error: str, detail: str, fix: str
    ) -> None:
        def refuse(*_: object) -> None:
            raise SourceUnavailableError(error)

        monkeypatch.setattr(doctor, "_run_sampler", refuse)

        found = it.document()["findings"][0]
        assert (found["detail"], found["fix"]) == (detail, fix)
        assert main(["doctor"]) == 3

    def test_is_given_up_after_a_call_that_hangs(self) -> None:
        never = threading.Event()

        def hang(before_call: doctor.BeforeCall) -> int:
            before_call("GPU 3: nvmlDeviceGetPowerUsage")
            never.wait(30)
            return 0

        with pytest.raises(SourceUnavailableError, match="GPU 3: nvmlDeviceGetPowerUsage"):
            doctor.patiently(hang, patience_s=0.3)
        never.set()
