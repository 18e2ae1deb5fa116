"""``gpumon doctor``: what this machine can report, and what to do about the rest."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import asdict
from time import monotonic
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.status import Status

from gpumon import __version__
from gpumon.cli.doctor.driver import driver_findings
from gpumon.cli.doctor.findings import (
    DRIVER,
    OFF,
    OK,
    Finding,
    finding_of,
    render_findings,
    with_one_remedy,
)
from gpumon.cli.doctor.gpus import gpu_findings, source_broken
from gpumon.cli.doctor.machine import machine_findings
from gpumon.cli.doctor.rule_table import render_rules, rules_document
from gpumon.cli.open_source import (
    LIVE_SOURCE_HELP,
    add_nvml_arguments,
    check_source_word,
    nvml_options_of,
    open_source,
)
from gpumon.core.sample import Frame
from gpumon.errors import GpumonError, SourceUnavailableError, UsageError
from gpumon.outlets.text.style import style_for
from gpumon.sources.installed import read_driver_files
from gpumon.sources.nvml.fields.table import NvmlOptions
from gpumon.sources.nvml.probe.probed import ProbedCall, ProbedDriver
from gpumon.sources.system_clock import SystemClock

_NO_SOURCE: Final = 3
_LOOKS: Final = 6
_BETWEEN_LOOKS_NS: Final = 400_000_000
_ASK_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 30.0
"""To open NVML takes seconds on a box with many boards that nobody holds open."""

_Found = TypeVar("_Found")
Beat = Callable[[str], None]


def patiently(look: Callable[[Beat], _Found], *, patience_s: float = _PATIENCE_S) -> _Found:
    """What ``look`` gives; a terminal sees on standard error what it asks meanwhile.

    It looks on a thread of its own, so that a driver that hangs can be told of.

    Args:
        look: Is handed a function that it calls with whatever it asks next.
        patience_s: How long one question may take.

    Raises:
        SourceUnavailableError: A question has not been answered for that long.
    """
    found: Future[_Found] = Future()
    asked, asked_at_s = "the driver", monotonic()

    def beat(what: str) -> None:
        nonlocal asked, asked_at_s
        asked, asked_at_s = what, monotonic()

    def work() -> None:
        try:
            found.set_result(look(beat))
        except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    with _screen() as show:
        while not wait([found], _ASK_EVERY_S).done:
            show(f"asking {asked}")
            if monotonic() - asked_at_s > patience_s:
                raise SourceUnavailableError(
                    f"the driver has not answered for {patience_s:.0f} s ({asked}): read "
                    "`dmesg`, and reboot if processes that use the GPU cannot be ended"
                )
    return found.result()


@contextmanager
def _screen() -> Iterator[Callable[[str], None]]:
    """Renews one line, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Status("looking", console=Console(stderr=True)) as status:
        yield status.update


class DoctorCommand:
    """Say what can be read on this machine, field by field, and how to mend the rest.

    Reads the GPUs for a few seconds and changes nothing. Of each field it says
    how often gpumon reads it, what a reading takes inside the driver, and
    what it answered; at the end, what to type, most important first.
    Exit code 3 when no GPU can be read. With --rules it looks at nothing: it lists
    the rules behind each verdict, finding and advice, and why their numbers are these.
    """

    example = "gpumon doctor --json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=LIVE_SOURCE_HELP)
        add_nvml_arguments(parser)
        parser.add_argument(
            "--rules",
            action="store_true",
            help="instead: what gpumon says and when, with every threshold and where it comes "
            "from; needs no GPU",
        )
        parser.add_argument("--json", action="store_true", help="for scripts")

    def run(self, args: argparse.Namespace) -> int:
        """Look, and say what was found."""
        style = style_for(sys.stdout, os.environ)
        if args.rules:
            if args.json:
                print(json.dumps(rules_document(), indent=2))
            else:
                print("\n".join(render_rules(style)))
            return 0
        check_source_word(args.source)
        findings, probed = _look(args.source, nvml_options_of(args))
        findings += machine_findings(has_gpus=findings[0].status == OK)
        findings = with_one_remedy(findings)
        if args.json:
            print(json.dumps(_document(findings, probed), indent=2))
        else:
            print("\n".join(render_findings(findings, style)))
        return 0 if findings[0].status == OK else _NO_SOURCE


def _look(word: str, options: NvmlOptions) -> tuple[list[Finding], ProbedDriver | None]:
    """What is to say of the source, and of the driver behind it."""
    is_nvml = word == "nvml"
    frames: list[Frame] = []
    probed: ProbedDriver | None = None
    try:
        frames = patiently(lambda beat: _frames(word, beat))
        found = list(gpu_findings(word, frames, None))
        if is_nvml:
            probed = patiently(lambda beat: _probe(options, beat))
            found = list(gpu_findings(word, frames, probed))
    except UsageError:  # a recording, for one: there is nothing to look at
        raise
    except GpumonError as error:
        found = [source_broken(error)]
    if is_nvml:
        found += driver_findings(read_driver_files(), probed, frames)
    else:
        made_up = f"not asked: the GPUs of {word} are made up"
        found.append(finding_of(DRIVER, "driver", made_up, status=OFF))
    return found, probed


def _frames(word: str, beat: Beat) -> list[Frame]:
    clock = SystemClock()
    beat("the source")
    frames = []
    with closing(open_source(word, clock)) as source:
        for number in range(_LOOKS):
            if number:
                clock.sleep_until_ns(clock.monotonic_ns() + _BETWEEN_LOOKS_NS)
            beat(f"for frame {number + 1} of {_LOOKS}")
            frames.append(source.read())
    return frames


def _probe(options: NvmlOptions, beat: Beat) -> ProbedDriver:
    from gpumon.sources.nvml.probe.probe import NvmlProbe

    with closing(NvmlProbe(SystemClock(), options=options, beat=beat)) as probe:
        return probe.ask_all()


# -- for scripts -------------------------------------------------------------------


def _document(findings: list[Finding], probed: ProbedDriver | None) -> dict[str, Any]:
    return {
        "schema": "gpumon.doctor/1",
        "version": __version__,
        "python": sys.version.split()[0],
        "findings": [{"name": finding.name, **asdict(finding)} for finding in findings],
        "driver": None if probed is None else _driver(probed),
    }


def _driver(probed: ProbedDriver) -> dict[str, Any]:
    document = asdict(probed)
    for gpu, found in zip(document["gpus"], probed.gpus, strict=True):
        gpu["fields"] = [
            {
                "name": one.field.name,
                "wanted": one.wanted,
                "works": one.works,
                "period_seconds": one.field.period_s,
                "reading_microseconds": one.reading_us,
                "seconds_per_second": one.seconds_per_second,
                "calls": [_call(call) for call in one.calls],
            }
            for one in found.fields
        ]
    return document


def _call(call: ProbedCall) -> dict[str, Any]:
    return {
        "function": call.function,
        "code": call.code,
        "answer": call.answer,
        "meaning": call.meaning,
        "value": call.value,
        "calls": len(call.durations_us),
        "median_microseconds": call.median_us,
        "worst_microseconds": call.worst_us,
    }
