"""Commands, pinned word for word: the exit code and message of each line that a user types.

They run in a folder of their own, with the files that each story makes there.
"""

from __future__ import annotations

import gzip
import re
import shlex
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from gpumon.cli.environment import misspelt_variables
from gpumon.cli.main import build_parser
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report
from gpumon.errors import SourceUnavailableError
from tests.builders import dstat as builders_dstat
from tests.builders import recording as builders_recording
from tests.builders.dstat import DOOL, DSTAT, Machine, Table, publish
from tests.builders.logs import HEADER, smi_log
from tests.builders.report import gpu, report, run, saved
from tests.command_line import Ended, Shell
from tests.golden_files import Chapters, golden_story

WAIT, NOT_IN_USE = IdleCause.INPUT_WAIT, IdleCause.NOT_IN_USE
LOG = smi_log([97] * 40)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, in which no daemon runs either."""
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(ended: Ended) -> str:
    """The code, and why: in sentences of ours, or after the usage."""
    _, is_usage, complaint = ended.err.rpartition(": error: ")
    after = ", after a report" if ended.out else ""
    assert is_usage or all(line.startswith("gpumon: ") for line in ended.err.splitlines())
    message = re.sub(r"line \d{3,}", "line N", ended.err)  # how far gzip comes is the library's own
    return f"exit {ended.code}{after}\n{complaint if is_usage else message}"


def refusals(gpumon: Shell, lines: Iterable[str]) -> Chapters:
    return {f"gpumon {line}": refused(gpumon(*shlex.split(line))) for line in lines}


def write(files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


@golden_story
def test_refusals_of_report(gpumon: Shell, here: Path) -> Chapters:
    slow = report(gpu(30, {WAIT: 30}), runs=(run(wall_s=60),))
    reports: dict[str, Report] = {
        "slow": slow,
        "saving": report(gpu(72, {IdleCause.CHECKPOINT: 28}), gpu(98, {WAIT: 2}, index=1)),
        "unused": report(gpu(0, {NOT_IN_USE: 600}), gpu(1, {WAIT: 2}, index=1)),
        "half": report(gpu(0, {NOT_IN_USE: 100}), gpu(98, {WAIT: 2}, index=1)),
        "none": report(),
    }
    for name, one in reports.items():
        saved(here, f"{name}.json", one)
    write(
        {
            "newer.json": '{"schema": "gpumon.report/2"}',
            "comparison.json": '{"schema": "gpumon.comparison/1"}',
            "list.json": "[]",
            "number.json": "7",
            "torn.json": "{",
            "deep.json": "[" * 100_000,
            "words.txt": "Verdict: Healthy",
            "empty": "",
            "gpu.csv": LOG,
        }
    )
    limits = "--fail-if-starved-above 5 --fail-if-lost-above 20"
    return refusals(
        gpumon,
        [
            "report",
            "report --run train --since 1h",
            "report --since 1h --compare slow.json slow.json",
            "report slow.json --compare slow.json slow.json",
            "report --since yesterday",
            "report --fail-if-lost-above=101",
            "report --fail-if-starved-above=%",
            "report slow.json --since 1h",
            "report slow.json --run train",
            "report --html p.html --compare slow.json slow.json",
            "report slow.json --html -",
            "report slow.json --html ./slow.json",
            "report slow.json --html nowhere/p.html",
            "report slow.json --html .",
            "report --html p.html",
            f"report slow.json {limits}",
            f"report saving.json {limits}",
            f"report unused.json {limits}",
            f"report half.json {limits}",
            f"report --compare slow.json none.json {limits}",
            "report --compare slow.json slow.json",
            *(
                f"report {name}"
                for name in (
                    "newer.json", "comparison.json", "list.json", "number.json", "torn.json",
                    "deep.json", "words.txt", "empty", "gpu.csv", "gone.json",
                )
            ),
            "report --compare slow.json list.json",
            "report --compare gone.json slow.json",
            "replay gpu.csv",
        ],
    )  # fmt: skip


@golden_story
def test_words_that_do_not_exist(gpumon: Shell, here: Path) -> Chapters:
    return refusals(
        gpumon,
        [
            "serv",
            "statsu",
            "Analyse gpu.csv",
            "plot gpu.csv",
            "frobnicate",
            "--versoin",
            "serve --port 9000",
            "serve --port=9000",
            "serve -p",
            "serve --bind 0.0.0.0",
            "serve --lisen 127.0.0.1:0",
            "serve --json",
            "serve --gpu 0 --period 2",
            "serve something",
            "report --gpu 1",
            "report --gpus=0,1",
            "report --prometheos http://prometheus:9090",
            "report --last 2h",
            "--json report",
            "why -i 3",
            "why --gpus 3",
            "why --follow",
            "record night.gpumon --gpu \033[31mred",
            "run --gpu 1 python train.py",
            "doctor --output",
            "demo --frobnicate",
        ],
    )


@golden_story
def test_refusals_of_analyze(gpumon: Shell, here: Path) -> Chapters:
    builders_recording.record(here / "night.gpumon", builders_recording.plain_readings(3))
    write(
        {
            "gpu.csv": LOG,
            "empty": "",
            "header.csv": f"{HEADER}\n",
            "three.csv": "time,\033[31mred\033[0m,foo\n1,2,3\n2,3,4\n",
            "torn.csv.gz": gzip.compress(smi_log([5]).encode())[:30],
            "cut.json": '[{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL"}, "values": [[1, "9"], [2',
            "cut.csv.gz": gzip.compress(smi_log(at % 101 for at in range(9_000)).encode())[:-4_000],
        }
    )
    with zipfile.ZipFile("logs.zip", "w") as packed:
        packed.writestr("a.csv", LOG)
    Path("folder").mkdir()
    for name, packing, content in (
        ("logs.tar.xz", "xz", "gpu.csv"), ("logs.tar.bz2", "bz2", "gpu.csv"),
        ("logs.tar", "", "gpu.csv"), ("logs.tar.gz", "gz", "gpu.csv"),
    ):  # fmt: skip
        with tarfile.open(name, f"w:{packing}") as tar:  # type: ignore[call-overload]
            tar.add(content)
    refused_lines = refusals(
        gpumon,
        [
            "analyze",
            "analyze --frobnicate gpu.csv",
            "analyze --column a=0 gpu.csv",
            "analyze --column utilization.gpu=77 gpu.csv",
            "analyze --column utilization.gpu=\033[31mred gpu.csv",
            "analyze --column utilization.gpu gpu.csv",
            "analyze --period soon gpu.csv",
            "analyze - -",
            "analyze --plot p.svg three.csv gpu.csv",
            "analyze --plot p.jpg gpu.csv",
            "analyze --plot picture gpu.csv",
            "analyze --plot nowhere/p.svg gpu.csv",
            "analyze --html p.html gpu.csv empty",
            "analyze --html - gpu.csv",
            "analyze --html ./gpu.csv gpu.csv",
            "analyze --html p.svg --plot p.svg gpu.csv",
            "analyze -",
            *(
                f"analyze {name}"
                for name in (
                    "gone.csv", "empty", "header.csv", "three.csv",
                    "torn.csv.gz", "cut.csv.gz",
                    "cut.json", "logs.tar", "logs.tar.gz", "logs.zip", "logs.tar.xz",
                    "logs.tar.bz2", "night.gpumon",
                )
            ),
        ],
    )  # fmt: skip

    assert not [*here.glob("p*")]
    assert Path("gpu.csv").read_text() == LOG
    return refused_lines


@golden_story
def test_refusals_of_record_and_replay(
    gpumon: Shell, here: Path, monkeypatch: pytest.MonkeyPatch
) -> Chapters:
    def refuse(*_: object, **__: object) -> None:
        raise SourceUnavailableError("libnvidia-ml.so.1 was not found")

    write({"there": "", "gpu.csv": LOG})
    lines = [
        "record -",
        "record .",
        "record none/file",
        "record there",
        "record new --source replay:there",
        "record new --source replay:",
        "record new --source replay:there,speed=fast",
        "record new --source replay:there,speed=20000",
        "record new --source replay:there,sped=3",
        "record new --source elsewhere",
        "record new --source follow:",
        "record new --source simulated:flat --nvml-off fan",
        "record new --for ever",
        "serve --source replay:gpu.csv --listen 127.0.0.1:0",
    ]
    refused_lines = refusals(gpumon, lines)
    monkeypatch.setattr("gpumon.cli.source_option.open_source", refuse)
    refused_lines = {**refused_lines, **refusals(gpumon, ["record new"])}

    assert not Path("new").exists()
    return refused_lines


@golden_story
def test_refusals_of_serve(gpumon: Shell, here: Path, monkeypatch: pytest.MonkeyPatch) -> Chapters:
    refused_lines = refusals(
        gpumon,
        [
            "serve --nvml-off fan speed",
            "serve --nvml-off utilization",
            "serve --nvml-on fan --nvml-off fan",
            "serve --nvml-on fan --source simulated:healthy",
            "serve --period soon",
            "serve --period 60",
            "serve --listen 19835",
            "serve --source simulated:healthy --listen 127.0.0.1:7777 0.0.0.0:7777",
        ],
    )
    for variable, text in (
        ("GPUMON_PERIOD", "lunch"),
        ("GPUMON_PERIOD", "-1"),
        ("GPUMON_PERIOD", "30"),
        ("GPUMON_LISTEN", "nowhere"),
        ("GPUMON_LISTEN", "127.0.0.1:1,--source"),
        ("GPUMON_LISTEN", "127.0.0.1:1 --period 5"),
        ("GPUMON_SOURCE", "lunch"),
        ("GPUMON_SOURCE", "--period=1"),
        ("GPUMON_WAIT_FOR_SOURCE", "maybe"),
        ("GPUMON_NVML_OFF", "lunch"),
        ("GPUMON_NVML_ON", ","),
        ("GPUMON_WEB_TOKEN_FILE", "/nowhere"),
    ):
        with monkeypatch.context() as shell:
            shell.setenv(variable, text)
            refused_lines = {
                **refused_lines,
                f"{variable}='{text}' gpumon serve": refused(gpumon("serve")),
            }
    misspelt = misspelt_variables(build_parser(["serve"]).commands["serve"], {"GPUMON_LISTNE": "x"})
    return {**refused_lines, "GPUMON_LISTNE='x' gpumon serve": "\n".join(misspelt)}


@golden_story
def test_words_of_dstat(
    gpumon: Shell, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Chapters:
    def printed_by(action: str) -> str:
        ended = gpumon("dstat", action)
        lines = (ended.out + ended.err).replace(str(here), "HERE").splitlines()
        own = [line for line in lines if "/usr/" not in line]  # what this machine has is its own
        return "\n".join([f"exit {ended.code}", *own])

    machine = Machine(here)
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    refused_lines = {"install, where neither is": printed_by("install")}
    machine.command("dstat", DSTAT)
    machine.command("dool", DOOL)
    outdated = machine.home / ".local" / "share" / "dool" / "plugins" / "dool_gpu.py"
    outdated.parent.mkdir(parents=True)
    outdated.write_text("# gpumon-dstat-plugin: of old\n", encoding="ascii")
    refused_lines["install, where both are"] = printed_by("install")
    refused_lines["where, of both"] = printed_by("where")
    machine.command("dstat", DSTAT, "python3.12")
    refused_lines["where, under a Python that is too new"] = printed_by("where")
    (machine.bin / "dstat").unlink()
    machine.pcp_dstat()
    refused_lines["install, where dstat is pcp-dstat"] = printed_by("install")
    refused_lines["uninstall"] = printed_by("uninstall")
    refused_lines["uninstall, again"] = printed_by("uninstall")
    outdated.unlink()
    refused_lines["where, without a copy"] = printed_by("where")
    machine.stranger()
    refused_lines["install, over another file"] = printed_by("install")
    refused_lines["uninstall, with another file there"] = printed_by("uninstall")
    Table()
    refused_lines["--gpu, without a daemon"] = capsys.readouterr().err
    publish(here / "run", builders_dstat.gpu(), age_s=60)
    Table()
    refused_lines["--gpu, after a daemon"] = capsys.readouterr().err
    publish(here / "run", builders_dstat.gpu(0), builders_dstat.gpu(1))
    monkeypatch.setenv("DSTAT_GPU", "1,7,x")
    Table()
    refused_lines["--gpu, of GPUs that there are not"] = capsys.readouterr().err
    return refused_lines
