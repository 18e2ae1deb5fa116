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
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.status import Status

from gpumon import __version__
from gpumon.cli.doctor.driver import driver_findings
from gpumon.cli.doctor.driver_answers import DriverAnswers
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
from gpumon.cli.source_option import (
    LIVE_SOURCE_HELP,
    add_nvml_arguments,
    check_source,
    nvml_options_of,
    open_source,
)
from gpumon.core.clock import nanoseconds
from gpumon.core.sample import Frame
from gpumon.errors import GpumonError, SourceUnavailableError, UsageError
from gpumon.outlets.text.style import style_for
from gpumon.sources.installed import read_driver_files
from gpumon.sources.nvml.fields.table import NvmlOptions
from gpumon.sources.system_clock import SystemClock

_NO_SOURCE: Final = 3
READINGS: Final = 8
EVERY_S: Final = 0.45
_SHOWN_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 30.0
"""Opening NVML takes seconds on a machine with many boards that no process holds open."""

_Found = TypeVar("_Found")
BeforeCall = Callable[[str], None]
"""Receives what is read next."""


def patiently(read: Callable[[BeforeCall], _Found], *, patience_s: float = _PATIENCE_S) -> _Found:
    """Return what ``read`` returns; a terminal shows on standard error what it reads.

    It runs on a thread of its own, so that a driver that hangs can be reported.

    Raises:
        SourceUnavailableError: A call has not returned for ``patience_s``.
    """
    found: Future[_Found] = Future()
    target, since_s = "the driver", monotonic()

    def before_call(what: str) -> None:
        nonlocal target, since_s
        target, since_s = what, monotonic()

    def work() -> None:
        try:
            found.set_result(read(before_call))
        except BaseException as error:  # noqa: BLE001 (raised by the thread that waits)
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    with _progress_line() as show:
        while not wait([found], _SHOWN_EVERY_S).done:
            show(f"reading {target}")
            if monotonic() - since_s > patience_s:
                raise SourceUnavailableError(
                    f"the driver has not answered for {patience_s:.0f} s ({target}): read "
                    "`dmesg`, and reboot if processes that use the GPU cannot be ended"
                )
    return found.result()


@contextmanager
def _progress_line() -> Iterator[Callable[[str], None]]:
    """Rewrites one line, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with Status("reading the driver", console=Console(stderr=True)) as status:
        yield status.update


class DoctorCommand:
    """Report what can be read on this machine, field by field, and how to fix the rest.

    Reads the GPUs for about three seconds and changes nothing. For each field it shows how often
    gpumon reads it, what a reading takes inside the driver, and the value; at the end, what to
    type, most important first. Exit code 3 if no GPU can be read. With --rules it reads nothing:
    it lists the rules behind each verdict, finding and piece of advice, and where their numbers
    come from.
    """

    example = "gpumon doctor --json"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=LIVE_SOURCE_HELP)
        add_nvml_arguments(parser)
        parser.add_argument(
            "--rules",
            action="store_true",
            help="instead: the rules behind what gpumon reports, with every threshold and where it "
            "comes from; needs no GPU",
        )
        parser.add_argument("--json", action="store_true", help="for scripts")

    def run(self, args: argparse.Namespace) -> int:
        style = style_for(sys.stdout, os.environ)
        if args.rules:
            if args.json:
                print(json.dumps(rules_document(), indent=2))
            else:
                print("\n".join(render_rules(style)))
            return 0
        check_source(args.source)
        findings, driver = _examine(args.source, nvml_options_of(args))
        findings += machine_findings(has_gpus=findings[0].status == OK)
        findings = with_one_remedy(findings)
        if args.json:
            print(json.dumps(_document(findings, driver), indent=2))
        else:
            print("\n".join(render_findings(findings, style)))
        return 0 if findings[0].status == OK else _NO_SOURCE


def _examine(source: str, options: NvmlOptions) -> tuple[list[Finding], DriverAnswers | None]:
    frames: list[Frame] = []
    driver: DriverAnswers | None = None
    try:
        if source == "nvml":
            frames, driver = patiently(partial(_run_sampler, options))
        else:
            frames = patiently(partial(_frames, source))
        findings = list(gpu_findings(source, frames, driver))
    except UsageError:  # a recording, for one: there is nothing to examine
        raise
    except GpumonError as error:
        findings = [source_broken(error)]
    if source == "nvml":
        findings += driver_findings(read_driver_files(), driver, frames)
    else:
        simulated = f"not read: the GPUs of {source} are simulated"
        findings.append(finding_of(DRIVER, "driver", simulated, status=OFF))
    return findings, driver


def _run_sampler(
    options: NvmlOptions, before_call: BeforeCall
) -> tuple[list[Frame], DriverAnswers]:
    from gpumon.cli.doctor.sampler_run import run_sampler  # needs a pynvml that fits

    clock = SystemClock()
    return run_sampler(clock, options, before_call, readings=READINGS, every_s=EVERY_S)


def _frames(source: str, before_call: BeforeCall) -> list[Frame]:
    clock = SystemClock()
    before_call("the source")
    frames = []
    with closing(open_source(source, clock)) as opened:
        for number in range(READINGS):
            if number:
                clock.sleep_until_ns(clock.monotonic_ns() + nanoseconds(EVERY_S))
            before_call(f"for frame {number + 1} of {READINGS}")
            frames.append(opened.read())
    return frames


def _document(findings: list[Finding], driver: DriverAnswers | None) -> dict[str, Any]:
    return {
        "schema": "gpumon.doctor/1",
        "version": __version__,
        "python": sys.version.split()[0],
        "findings": [{"name": finding.name, **asdict(finding)} for finding in findings],
        "driver": None if driver is None else driver.document(),
    }
