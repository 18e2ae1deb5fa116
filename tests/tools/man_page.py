"""The man page of ``gpumon``, from the parser of its command line: ``make golden`` renews it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gpumon import __doc__ as summary
from gpumon import __version__
from gpumon.cli.main import build_parser

PAGE: Final = Path(__file__).resolve().parents[2] / "deploy" / "gpumon.1"
_TABLE: Final = re.compile(r"\S {2,}\S", re.MULTILINE)


def man_page() -> str:
    """The page, for ``man``; the same for every version of Python."""
    parser = build_parser()
    about, _, exit_codes = (parser.epilog or "").partition("Exit codes:")
    lines = [
        f'.TH GPUMON 1 "" "gpumon {__version__}"',
        ".SH NAME",
        f"gpumon \\- {_text((summary or '').strip().rstrip('.'))}",
        ".SH SYNOPSIS",
        r".B gpumon",
        r"\fICOMMAND\fR [\fIOPTION\fR ...]",
        ".SH DESCRIPTION",
        *_paragraphs(parser.description or ""),
        *_paragraphs(about),
        ".SH COMMANDS",
    ]
    for name, command in parser.commands.items():
        lines += [f".SS gpumon {name}", *_paragraphs(command.description or "")]
        for action in command._actions:
            lines += _argument(action)
        lines += [".PP", *_paragraphs(command.epilog or "")]
    lines += [".SH EXIT STATUS", _text(" ".join(exit_codes.split())), ".SH SEE ALSO", "dstat(1)"]
    return "\n".join(lines) + "\n"


def _choices_of(action: argparse.Action) -> list[argparse.Action]:
    return list(getattr(action, "_choices_actions", ()))


def _argument(action: argparse.Action) -> Iterator[str]:
    """An argument with its help, or the choices of a command."""
    if action.dest == "help":
        return
    for choice in _choices_of(action):
        yield from (".TP", rf"\fB{_text(choice.dest)}\fR", _text(choice.help or ""))
    if not _choices_of(action):
        names = [rf"\fB{_text(name)}\fR" for name in action.option_strings]
        yield from (".TP", " ".join([", ".join(names), *_values(action)]).strip())
        named = {**vars(action), "prog": "gpumon"}
        yield _text((action.help or "") % named)


def _values(action: argparse.Action) -> Iterator[str]:
    if action.nargs == 0:
        return
    names = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    for name in [names] if isinstance(names, str) else names:
        yield rf"\fI{_text(name)}\fR"
    if action.nargs in ("+", "*", argparse.REMAINDER):
        yield "..."


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs that are filled, except tables and examples."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if not lines:
            continue
        kept = bool(_TABLE.search(paragraph)) or any(line.startswith("  ") for line in lines)
        yield from (".PP", *([".nf"] if kept else []), *_escaped(lines), *([".fi"] if kept else []))


def _escaped(lines: Iterable[str]) -> list[str]:
    return [_text(line) for line in lines]


def _text(text: str) -> str:
    """A line that roff prints as it is."""
    shown = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{shown}" if shown.startswith((".", "'")) else shown
