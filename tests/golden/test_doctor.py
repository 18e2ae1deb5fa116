"""The doctor's findings on a machine; its table of boards: ``doctor_two_boards.txt``."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from gpumon.cli.doctor.findings import Finding
from gpumon.cli.doctor.gpus import gpu_findings
from gpumon.cli.doctor.machine import host_finding, port_finding
from gpumon.cli.doctor.sampler_run import run_sampler
from gpumon.cli.doctor.stacks import StackAccess, stack_finding
from gpumon.sources.host.readable_evidence import HostVisibility
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS
from gpumon.sources.system_clock import SystemClock, read_boot_id
from tests.builders.ring import WrittenRing, phases_folder, run_facts
from tests.fakenvml.control import FakeNvml
from tests.golden_files import Chapters, golden_story
from tests.serving import answering
from tests.unit.cli.doctor.test_machine import findings_in


def shown(*found: Finding) -> str:
    """Each with its status and fix; what differs from run to run is masked."""
    lines = [f"{one.status} {one.name}: {one.detail}" for one in found]
    fixes = [f"\n  {one.fix}" if one.fix else "" for one in found]
    text = "\n".join(line + fix for line, fix in zip(lines, fixes, strict=True))
    text = re.sub(r"(port|uid) \d+", r"\1 N", text)
    return re.sub(r"pid \d+ \([^)]*\)", "pid N (NAME)", text)


def of_boards() -> Iterable[Finding]:
    frames, driver = run_sampler(SystemClock(), DEFAULT_OPTIONS, readings=3, every_s=0.18)
    return list(gpu_findings("nvml", frames, driver))


@golden_story
def test_findings_of_the_doctor(tmp_path: Path, fake_nvml: FakeNvml) -> Chapters:
    fake_nvml.cut(0, 2)
    of_a_partitioned_gpu = {one.name: one for one in of_boards()}
    nothing = findings_in(tmp_path / "new")
    for name, of in (
        ("dstat", "pmpython\nimport pmapi"),
        ("dool", "python3.11\nfrom dool import main"),
    ):
        (tmp_path / name).write_text(f"#!/usr/bin/{of}\n")
        (tmp_path / name).chmod(0o755)
    hosts = findings_in(tmp_path, PATH=str(tmp_path))["dstat"].detail
    WrittenRing(tmp_path, run_facts(boot_id=read_boot_id(), started_ns=time.monotonic_ns()))
    (phases_folder(tmp_path) / "1-2.ring").write_bytes(b"no ring at all")
    rings = findings_in(tmp_path)
    with answering(b'gpumon_build_info{version="0.1"} 1\n') as listen:
        ports = [port_finding(listen)]
    ports.append(port_finding(listen))
    with answering(b"<html>") as listen:
        ports.append(port_finding(listen))
    names = "gpu source", "gpu 0 utilisation", "gpu 0 mig", "gpu 0:0 not its own"
    chapters = {
        "a MIG-partitioned GPU": shown(*(of_a_partitioned_gpu[name] for name in names)),
        "a machine where nothing runs": shown(
            nothing["runtime folder"], nothing["daemon"], nothing["rings"]
        ),
        "rings: one of an ended run, and a file that is none": shown(
            rings["rings"], rings["rings refused"]
        ),
        "a port: gpumon's, free, another program's": shown(*ports),
        "what can be seen of a training run": shown(
            host_finding(HostVisibility(), others_train=True)
        ),
        "the same, where other users' processes are hidden": shown(
            host_finding(HostVisibility(opens_others=False), others_train=False)
        ),
        "and where another user trains": shown(
            host_finding(HostVisibility(opens_others=False), others_train=True)
        ),
        "a machine with little evidence": shown(
            host_finding(
                HostVisibility(
                    names_sleep=False,
                    names_children=False,
                    counts_memory_stalls=False,
                    shows_others=False,
                    opens_others=False,
                ),
                others_train=True,
            )
        ),
        "a machine without evidence": shown(
            host_finding(HostVisibility(counts_cores=False, names_sleep=False), others_train=False)
        ),
        "stacks of all users, and of this user": shown(
            stack_finding(StackAccess("0.4.3", is_privileged=True), in_container=False),
            stack_finding(StackAccess("0.4.3"), in_container=False),
            stack_finding(StackAccess("0.4.3"), in_container=True),
        ),
        "stacks under ptrace_scope 1 to 3": shown(
            *(stack_finding(StackAccess("0.4.3", scope), in_container=False) for scope in (1, 2, 3))
        ),
        "the same in a container": shown(
            stack_finding(StackAccess("0.4.3", 1), in_container=True),
            stack_finding(StackAccess("0.4.3", is_possible=False), in_container=True),
        ),
        "stacks without py-spy, and with another": shown(
            *(stack_finding(StackAccess(one), in_container=False) for one in (None, "", "0.5.0"))
        ),
        "dstat of PCP, and dool": hosts.replace("; ", "\n"),
    }
    places = {str(tmp_path): "/here", str(Path(sys.executable).parent): "/environment/bin"}
    for place, shown_as in places.items():
        chapters = {title: text.replace(place, shown_as) for title, text in chapters.items()}
    return chapters
