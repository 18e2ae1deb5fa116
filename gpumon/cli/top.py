"""``gpumon top``: the GPUs of this machine on one screen."""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
from importlib.util import find_spec
from typing import Final

from gpumon.cli.command import add_period_argument
from gpumon.cli.view_feeds import (
    TICKS_OF_ONE_SCREEN,
    DaemonFeed,
    ViewFeed,
    WatchFeed,
    running_daemon,
)
from gpumon.errors import UsageError
from gpumon.outlets.http.clients import host_name, is_loopback, token_in
from gpumon.outlets.screen.ink import Ink
from gpumon.outlets.screen.one_screen import Screenful, one_screen
from gpumon.outlets.text.style import style_for
from gpumon.sources.daemon_view import DaemonAddress

_TOKEN_OPTION: Final = "--token-file"
_COLUMNS_OF_A_PIPE: Final = 120


class TopCommand:
    """Show the GPUs on one screen: which, what, whose, since when, and what to do.

    Reads the running daemon of this machine, or the one that --connect names; if
    there is none, watches NVML in this process for as long as the screen is open.
    With -1, or if the output is no terminal, it prints one screen and ends. The
    screen that moves needs textual (the extra tui). `h` lists its keys.
    It never ends a process: `k` shows the command to copy.
    """

    example = (
        "gpumon top\n"
        "  gpumon top -1                                # one screen, also into a file or a pipe\n"
        "  gpumon top --source simulated:eight          # without a GPU"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-1", "--once", action="store_true", help="print one screen, and end")
        parser.add_argument(
            "--connect",
            metavar="HOST:PORT",
            type=_address,
            help="the daemon to read (default: the one that runs on this machine)",
        )
        parser.add_argument(
            _TOKEN_OPTION,
            metavar="FILE",
            type=lambda path: token_in(path, _TOKEN_OPTION).decode("ascii"),
            dest="token",
            help="the token of a daemon that --connect names beyond loopback: the same file as its "
            "--web-token-file",
        )
        parser.add_argument(
            "--source",
            metavar="SOURCE",
            help="watch this in this process, without a daemon: nvml, simulated:SCRIPT or "
            "follow:FILE, as with `gpumon record`",
        )
        add_period_argument(parser)

    def run(self, args: argparse.Namespace) -> int:
        feed = _feed(args)
        try:
            if args.once or not _is_live_terminal():
                return _print_once(feed.first(TICKS_OF_ONE_SCREEN))
            return _show_live(feed)
        finally:
            feed.close()


def _address(text: str) -> str:
    from gpumon.outlets.http.server import parse_listen  # takes 40 ms to import

    place = text.removeprefix("http://").rstrip("/")  # as `gpumon serve` prints it
    try:
        endpoint = parse_listen(place)
    except UsageError:
        endpoint = None
    if endpoint is None or not endpoint.port or place.startswith(":"):
        raise argparse.ArgumentTypeError(f"wants HOST:PORT such as 127.0.0.1:19835, got {text!r}")
    return str(endpoint)


def _feed(args: argparse.Namespace) -> ViewFeed:
    """What the arguments say to show.

    Raises:
        UsageError: They contradict each other.
        NoDaemonError: A daemon is named, or lives, and does not answer.
    """
    if args.source is not None and args.connect is not None:
        raise UsageError("--source and --connect exclude each other")
    if args.token is not None and args.connect is None:
        raise UsageError(f"{_TOKEN_OPTION} needs --connect")
    if args.connect is not None:
        if args.token is None and not is_loopback(host_name(args.connect)):
            raise UsageError(
                f"--connect {args.connect} is beyond loopback, where a daemon shows its GPUs only "
                f"with a token: add {_TOKEN_OPTION} FILE, the file of its --web-token-file"
            )
        return DaemonFeed(lambda: DaemonAddress(args.connect, args.token or ""))
    if args.source is not None:
        from gpumon.cli.source_option import check_source, replay_of  # takes 50 ms to import

        if replay_of(check_source(args.source)) is not None:
            raise UsageError(
                "a recording is no live source: play it with `gpumon serve --source "
                f"{args.source}`, and run `gpumon top` beside it"
            )
        return WatchFeed(args.source, args.period)
    if running_daemon() is not None:
        return DaemonFeed(running_daemon)
    return WatchFeed("nvml", args.period, is_fallback=True)


def _is_live_terminal() -> bool:
    # textual draws on standard error.
    is_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return is_terminal and os.environ.get("TERM") not in (None, "", "dumb")


def _print_once(shown: Screenful) -> int:
    from rich.console import Console

    style = style_for(sys.stdout, os.environ)
    columns = _columns()
    console = Console(
        file=sys.stdout,
        width=columns,
        color_system="auto" if style.colour else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as printed:  # by itself, rich ends with code 1 at a closed pipe
        for line in one_screen(shown, columns, Ink(style)):
            line.rstrip()
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
    sys.stdout.write(printed.get())
    return 0


def _columns() -> int:
    found = shutil.get_terminal_size((_COLUMNS_OF_A_PIPE, 24)).columns
    return max(1, found)


def _show_live(feed: ViewFeed) -> int:
    if find_spec("textual") is None:
        raise UsageError(
            "the screen that moves needs textual: install it with "
            f"`{sys.executable} -m pip install 'textual>=1'`, or print one screen with "
            "`gpumon top -1`"
        )
    gc.disable()  # until the screen is there: imports make thousands of objects that stay
    first = feed.first()  # without a daemon that is named, there is no screen
    from gpumon.outlets.screen.app import run_screen

    return run_screen(feed, first, Ink(style_for(sys.stdout, os.environ)))
