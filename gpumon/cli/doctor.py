"""``gpumon doctor``: what this machine can report, and what to do about the rest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from gpumon.cli.main import installed_version
from gpumon.cli.open_source import SOURCE_HELP, check_source_word, open_source
from gpumon.core.figures import counted
from gpumon.core.sample import Frame, GpuSample
from gpumon.core.state import CollectorState, refusal_note
from gpumon.core.units import seconds
from gpumon.errors import GpumonError
from gpumon.outlets.http_server import DEFAULT_LISTEN
from gpumon.sources.daemon import read_state
from gpumon.sources.installed import strangers_called_gpumon
from gpumon.sources.runtime_dir import NAME_A_FOLDER, find_state_file, runtime_dir_trouble
from gpumon.sources.system_clock import SystemClock, read_boot_id

_LOOKS = 6
_BETWEEN_LOOKS_NS = 400_000_000
_NO_SOURCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What it is.
        status: ``ok``, ``missing`` (nothing breaks, less is shown) or ``broken``.
        detail: What was found.
        fix: What to do about it; ``None`` where there is nothing to do.
    """

    name: str
    status: str
    detail: str
    fix: str | None = None


class DoctorCommand:
    """Say what can be read on this machine, field by field, and how to mend the rest.

    Reads the GPUs for about two seconds; changes nothing. Exit code 3 when
    no GPU can be read.
    """

    name = "doctor"
    summary = "what this machine can report, and how to mend the rest"
    example = "gpumon doctor --json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=SOURCE_HELP)
        parser.add_argument("--json", action="store_true", help="for scripts")

    def run(self, args: argparse.Namespace) -> int:
        """Look, and say what was found."""
        check_source_word(args.source)
        findings = [*_source_findings(args.source), *_machine_findings()]
        if args.json:
            document = {
                "schema": "gpumon.doctor/1",
                "version": installed_version(),
                "python": sys.version.split()[0],
                "findings": [asdict(finding) for finding in findings],
            }
            print(json.dumps(document, indent=2))
        else:
            print("\n".join(_as_text(findings)))
        return 0 if findings[0].status == "ok" else _NO_SOURCE


def _source_findings(word: str) -> list[Finding]:
    clock = SystemClock()
    try:
        source = open_source(word, clock)
    except GpumonError as error:
        return [_broken_source(error)]
    try:
        frames = []
        for _ in _looks():
            frames.append(source.read())
            clock.sleep_until_ns(clock.monotonic_ns() + _BETWEEN_LOOKS_NS)
    except GpumonError as error:
        return [_broken_source(error)]
    finally:
        source.close()
    return list(_gpu_findings(word, frames))


def _broken_source(error: GpumonError) -> Finding:
    what, _, fix = str(error).partition(": ")
    return Finding(
        name="gpu source", status="broken", detail=what, fix=fix or "see nvidia-smi and dmesg"
    )


def _looks() -> Iterable[int]:
    """As many numbers as there are looks; a terminal sees them pass."""
    looks = range(_LOOKS)
    if not sys.stderr.isatty():
        return looks
    return track(looks, "reading the GPUs", console=Console(stderr=True), transient=True)


def _gpu_findings(word: str, frames: list[Frame]) -> Iterator[Finding]:
    gpus = frames[-1].gpus
    if not gpus:
        yield Finding(
            name="gpu source",
            status="broken",
            detail=f"{word} names no GPU",
            fix="check that the container or cgroup may see the GPUs (nvidia-smi -L)",
        )
        return
    readable = sum(gpu.error is None for gpu in gpus)
    detail = f"{word}: {counted(len(gpus), 'GPU', 'GPUs')}, {readable} can be read"
    yield Finding(name="gpu source", status="ok" if readable else "broken", detail=detail)
    told = [frame.trouble for frame in frames if frame.trouble is not None]
    if told:
        yield Finding(
            name="busy spans",
            status="missing",
            detail=told[-1],
            fix="let the training write its busy spans to that file, a line as each span ends",
        )
    for gpu in gpus:
        heard = [g for frame in frames for g in frame.gpus if g.device.uuid == gpu.device.uuid]
        yield _identity(gpu)
        if gpu.error is None:
            yield from _fields(gpu, heard)


def _identity(gpu: GpuSample) -> Finding:
    device = gpu.device
    name = f"gpu {device.index}"
    if gpu.error is not None:
        return Finding(name=name, status="broken", detail=gpu.error, fix="see nvidia-smi and dmesg")
    known = (device.name, device.uuid, device.driver_version and f"driver {device.driver_version}")
    return Finding(name=name, status="ok", detail=", ".join(word for word in known if word))


def _fields(gpu: GpuSample, heard: list[GpuSample]) -> Iterator[Finding]:
    prefix = f"gpu {gpu.device.index} "
    windows = [sample for one in heard for sample in one.busy]
    if windows:
        length_s = sorted(seconds(sample.end_ns - sample.start_ns) for sample in windows)
        middle_s = length_s[len(length_s) // 2]
        yield Finding(
            name=prefix + "utilisation",
            status="ok",
            detail=f"{len(windows)} samples, {middle_s * 1000:.0f} ms each: "
            "shorter pauses show as a level, not as on and off",
        )
    else:
        yield Finding(
            name=prefix + "utilisation",
            status="missing",
            detail="no sample within two seconds",
            fix="with MIG on, utilisation is not to be had from the parent GPU",
        )
    for name, read in _FIELDS.items():
        values = [value for one in heard if (value := read(one)) is not None]
        yield (
            Finding(name=prefix + name, status="ok", detail=str(values[-1]))
            if values
            else Finding(name=prefix + name, status="missing", detail="this board does not say")
        )


_FIELDS: dict[str, Callable[[GpuSample], object]] = {
    "memory": lambda gpu: gpu.memory_used_bytes and f"{gpu.memory_used_bytes / 2**30:.1f} GiB used",
    "power": lambda gpu: gpu.power_watts and f"{gpu.power_watts:.0f} W",
    "temperature": lambda gpu: gpu.temperature_celsius and f"{gpu.temperature_celsius:.0f} C",
    "sm clock": lambda gpu: gpu.sm_clock_hertz and f"{gpu.sm_clock_hertz / 1e6:.0f} MHz",
    "energy": lambda gpu: gpu.energy_joules and f"{gpu.energy_joules:.0f} J",
    "processes": lambda gpu: None if gpu.processes is None else f"{len(gpu.processes)} now",
}


def _machine_findings() -> Iterator[Finding]:
    trouble = runtime_dir_trouble()
    yield (
        Finding(name="runtime folder", status="ok", detail="usable")
        if trouble is None
        else Finding(
            name="runtime folder",
            status="broken",
            detail=trouble,
            fix=NAME_A_FOLDER,
        )
    )
    state = find_state_file()
    yield (
        Finding(name="daemon", status="ok", detail=f"running: {state}")
        if state is not None
        else Finding(
            name="daemon",
            status="missing",
            detail="none is running",
            fix=f"start one: gpumon serve (page and /metrics on {DEFAULT_LISTEN})",
        )
    )
    if state is not None:
        yield from _refusals(state)
    flavours = [str(path) for path in _DSTATS if path.exists()]
    yield (
        Finding(name="dstat", status="ok", detail=", ".join(flavours))
        if flavours
        else Finding(
            name="dstat",
            status="missing",
            detail="neither dstat nor dool is installed",
            fix="apt-get install dstat, or pip install dool; then gpumon dstat install",
        )
    )
    for place in strangers_called_gpumon():
        yield Finding(
            name="stranger",
            status="broken",
            detail=f"another distribution called gpumon is installed in {place}",
            fix="pip uninstall gpumon; this tool's distribution is gpumon-starvation",
        )


def _refusals(state_file: Path) -> Iterator[Finding]:
    """What the running daemon could not read of trainings, and why."""
    try:
        state = read_state(state_file, SystemClock(), read_boot_id())
        collectors = [CollectorState(**entry) for entry in state["collectors"]]
    except (GpumonError, KeyError, TypeError):  # it ended this moment, or is of another version
        return
    for collector in collectors:
        note = refusal_note(collector)
        if note is not None:
            name, _, detail = note.partition(": ")
            yield Finding(name=name.replace("_", " "), status="missing", detail=detail)


_DSTATS = (Path("/usr/bin/dstat"), Path("/usr/bin/dool"), Path(sys.prefix) / "bin" / "dool")


def _as_text(findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        yield f"{finding.status:8} {finding.name:{width}}  {finding.detail}"
    fixes = [finding for finding in findings if finding.fix]
    if fixes:
        yield ""
        yield "Fix"
        for number, finding in enumerate(fixes, start=1):
            yield f"  {number}. {finding.name}: {finding.fix}"
