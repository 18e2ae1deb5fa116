"""Tests of the doctor's findings on the machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpumon.cli.doctor.driver import driver_findings
from gpumon.cli.doctor.findings import Finding
from gpumon.cli.doctor.machine import host_finding, machine_findings
from gpumon.sources.host.readable_evidence import HostVisibility
from gpumon.sources.installed import container_words, read_driver_files
from gpumon.sources.system_clock import read_boot_id
from tests.builders.ring import WrittenRing, run_facts

MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
NOT_YET = " (not there yet)"


def findings_in(folder: Path, **environ: str) -> dict[str, Finding]:
    environ = {"GPUMON_RUNTIME_DIR": str(folder), "HOME": str(folder), "PATH": "", **environ}
    return {finding.name: finding for finding in machine_findings(environ)}


class TestTheRings:
    def test_are_counted_and_none_is_removed(self, tmp_path: Path) -> None:
        facts = run_facts(boot_id=read_boot_id(), started_ns=time.monotonic_ns())
        ring = WrittenRing(tmp_path, facts)

        found = findings_in(tmp_path)["rings"]

        assert found.status == "ok"
        assert "1 ended" in found.detail
        assert ring.path.exists()


class TestTheRuntimeFolder:
    def test_is_the_one_that_a_daemon_would_use(self, tmp_path: Path) -> None:
        there, new = findings_in(tmp_path), findings_in(tmp_path / "new")

        assert f" {tmp_path}, " in there["runtime folder"].detail
        assert "$GPUMON_RUNTIME_DIR" in there["runtime folder"].detail
        assert new["runtime folder"].detail.endswith(NOT_YET)
        assert not (tmp_path / "new").exists()

    def test_that_all_users_can_write_is_broken(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o777)

        found = findings_in(tmp_path)["runtime folder"]

        assert found.status == "broken"
        assert "GPUMON_RUNTIME_DIR" in str(found.fix)


class TestTheDaemon:
    def test_without_gpus_comes_with_commands_that_need_none(self, tmp_path: Path) -> None:
        environ = {"GPUMON_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": ""}

        found = {one.name: one for one in machine_findings(environ, has_gpus=False)}["daemon"]

        assert "gpumon demo" in str(found.fix)
        assert "--source simulated:" in str(found.fix)


class TestAContainer:
    @pytest.mark.parametrize(
        ("mark", "environ", "printed"),
        [
            (".dockerenv", {}, "Docker (/.dockerenv)"),
            ("run/.containerenv", {}, "Podman (/run/.containerenv)"),
            ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
            ("", {"container": "systemd-nspawn"}, "systemd-nspawn ($container)"),
        ],
    )
    def test_is_recognised(
        self, tmp_path: Path, mark: str, environ: dict[str, str], printed: str
    ) -> None:
        (tmp_path / "run").mkdir()
        if mark:
            (tmp_path / mark).touch()

        assert str(container_words(environ, tmp_path)).startswith(printed)

    def test_is_none_without_evidence(self, tmp_path: Path) -> None:
        assert container_words({}, tmp_path) is None


class TestTheDriversFiles:
    @staticmethod
    def machine(root: Path, module: str, params: str = "") -> Path:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "dev").mkdir()
        (root / "proc/driver/nvidia/version").write_text(module)
        (root / "proc/driver/nvidia/params").write_text(params)
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
            (root / "dev" / name).touch()
        return root

    @pytest.mark.parametrize(
        ("module", "version"), [(MODULE, "580.95.05"), (OPEN_MODULE, "570.86.15")]
    )
    def test_show_the_version_of_the_module(
        self, tmp_path: Path, module: str, version: str
    ) -> None:
        assert read_driver_files(self.machine(tmp_path, module)).module_version == version

    def test_may_be_missing(self, tmp_path: Path) -> None:
        files = read_driver_files(tmp_path)
        reported = {finding.name: finding for finding in driver_findings(files, None, [])}

        assert (files.module_version, files.profiling_needs_root) == (None, None)
        assert reported["kernel module"].status == "missing"
        assert "profiling" not in reported

    def test_without_permission_come_with_the_command_that_grants_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = self.machine(tmp_path, MODULE)
        monkeypatch.setattr("os.access", lambda path, mode: "nvidiactl" not in str(path))

        files = read_driver_files(root)
        reported = {finding.name: finding for finding in driver_findings(files, None, [])}

        assert reported["device files"].status == "broken"
        assert "chmod a+rw /dev/nvidiactl" in str(reported["device files"].fix)


class TestHostEvidence:
    def test_is_ok_if_the_kernel_shows_all(self) -> None:
        found = host_finding(HostVisibility(), others_train=True)

        assert (found.name, found.status, found.fix) == ("host evidence", "ok", None)

    @pytest.mark.parametrize("lacking", HostVisibility._fields[:5])
    def test_is_missing_with_a_fix(self, lacking: str) -> None:
        found = host_finding(HostVisibility()._replace(**{lacking: False}), others_train=False)

        assert found.status == "missing"
        assert found.fix

    @pytest.mark.parametrize(("others_train", "status"), [(False, "ok"), (True, "missing")])
    def test_of_other_users_matters_only_while_one_trains(
        self, others_train: bool, status: str
    ) -> None:
        found = host_finding(HostVisibility(opens_others=False), others_train=others_train)

        assert found.status == status

    @pytest.mark.parametrize(
        ("sight", "reasons"),
        [
            (HostVisibility(names_sleep=False), {"network_bound", "latency_bound"}),
            (HostVisibility(counts_memory_stalls=False), {"memory_pressure", "disk_bound"}),
        ],
    )
    def test_names_the_reasons_that_will_be_unknown(
        self, sight: HostVisibility, reasons: set[str]
    ) -> None:
        reported = host_finding(sight, others_train=False).detail

        assert {word.strip(":,;") for word in reported.split() if "_" in word} == reasons
