"""``gpumon dstat``: installs the plugin for dstat and dool, and shows which copy each loads."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumon.cli.dstat_hosts import (
    OPTIONS,
    CopyState,
    DstatHost,
    Flavour,
    find_hosts,
    home_copies,
    loaded_copies,
    put_copy,
    remove_copy,
)
from gpumon.errors import GpumonError

_ELSEWHERE = (
    "; to use another home folder, run `HOME=FOLDER gpumon dstat install` and "
    "`HOME=FOLDER dstat -cdn --gpu 1`"
)


class DstatCommand:
    """Add the columns --gpu and --gpu-stall to dstat and dool, or remove them.

    install     copy the plugin to ~/.dstat and ~/.dool, whether or not they exist
    uninstall   remove these copies, and nothing that gpumon did not write
    where       show which copy each command loads, and whether it is current

    With `gpumon serve` running, `dstat -cdn --gpu 1` shows how busy and how
    starved each GPU was in each second, and `dstat -cdn --gpu-stall 1` how much
    of its time was lost, and why.
    """

    example = "gpumon dstat install && dstat -cdn --gpu 1"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        actions.add_parser("install", help="copy the plugin to ~/.dstat and ~/.dool")
        actions.add_parser("uninstall", help="remove these copies")
        where = actions.add_parser("where", help="show which copy each command loads")
        where.add_argument("--json", action="store_true", help="for scripts")

    def run(self, args: argparse.Namespace) -> int:
        hosts = find_hosts(os.environ)
        if args.action == "install":
            _for_each_copy(_copy_to, _ELSEWHERE)
            _print_hosts(hosts)
        elif args.action == "uninstall":
            _for_each_copy(_remove_from, "")
        elif args.json:
            print(json.dumps({"hosts": [_as_json(host) for host in hosts]}, indent=2))
        else:
            _print_hosts(hosts, with_paths=True)
        return 0


def _copy_to(path: Path) -> str:
    put_copy(path)
    return f"wrote    {path}"


def _remove_from(path: Path) -> str:
    was = remove_copy(path)
    if was.is_ours:
        return f"removed  {path}"
    return f"nothing  {path}" if was is CopyState.ABSENT else f"left     {path}: {was.value}"


def _for_each_copy(action: Callable[[Path], str], error_suffix: str) -> None:
    """Act on every copy, even if one fails."""
    failures = []
    for path in home_copies(os.environ):
        try:
            print(action(path))
        except GpumonError as error:  # noqa: PERF203  (four of them)
            failures.append(str(error))
    if failures:
        raise GpumonError(f"{'; '.join(failures)}{error_suffix}")


def _print_hosts(hosts: tuple[DstatHost, ...], *, with_paths: bool = False) -> None:
    for host in hosts:
        print(f"{host.command.name:<9}{_described(host)}")
        if with_paths:
            _print_paths(host)
    if not any(host.obstacle is None for host in hosts):
        print(
            "No command on PATH loads the plugin: run `apt install dstat` on Debian 11 and 12 and"
            " Ubuntu 22.04, or `pip install dool` anywhere."
        )


def _described(host: DstatHost) -> str:
    """The command, what it is, and how to use it or why not, in one line."""
    links = "" if host.target == host.command else f" -> {host.target}"
    version = ".".join(map(str, host.python_version or ()))
    python = f" under Python {version}" if version else ""
    is_known = host.flavour is not Flavour.UNKNOWN
    what = f"is {host.flavour.value}{python}" if is_known else "is not dstat"
    outlook = host.obstacle or f"`{host.command.name} -cdn --gpu 1`"
    return f"{host.command}{links} {what}: {outlook}"


def _print_paths(host: DstatHost) -> None:
    copies = host.copies()
    for copy in copies:
        mark = "  <- loaded" if copy.is_loaded else ""
        print(f"         {copy.path}: {copy.state.value}{mark}")
    missing = [option for option in OPTIONS if option not in loaded_copies(copies)]
    if copies and missing:
        print(f"         missing {' and '.join(missing)}: run `gpumon dstat install`")


def _as_json(host: DstatHost) -> dict[str, Any]:
    copies = host.copies()
    loaded = loaded_copies(copies).get("--gpu")
    return {
        "command": str(host.command),
        "target": str(host.target),
        "flavour": host.flavour.value,
        "python": str(host.python) if host.python else None,
        "python_version": list(host.python_version) if host.python_version else None,
        "obstacle": host.obstacle,
        "copies": [
            {
                "option": copy.option,
                "path": str(copy.path),
                "state": copy.state.value,
                "loaded": copy.is_loaded,
            }
            for copy in copies
        ],
        "loaded": None if loaded is None else str(loaded.path),
    }
