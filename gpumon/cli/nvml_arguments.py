"""``--nvml-off`` and ``--nvml-on``: what the driver is asked, in every command that opens it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gpumon.errors import UsageError
from gpumon.sources.nvml_catalog import (
    ALWAYS_ON,
    DEFAULT_OPTIONS,
    NVML_FIELDS,
    NvmlOptions,
    nvml_options,
)


def add_nvml_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare both options; each may be said several times, with several words or commas."""
    by_default = ", ".join(
        field.name for field in NVML_FIELDS if not field.opt_in and field.name != ALWAYS_ON
    )
    opt_in = ", ".join(field.name for field in NVML_FIELDS if field.opt_in)
    parser.add_argument(
        "--nvml-off",
        metavar="FIELD",
        type=lambda words: _checked(words, off=_names([words])),
        nargs="+",
        action="extend",
        default=[],
        help=f"do not ask the driver for: {by_default}",
    )
    parser.add_argument(
        "--nvml-on",
        metavar="FIELD",
        type=lambda words: _checked(words, on=_names([words])),
        nargs="+",
        action="extend",
        default=[],
        help=f"ask it, too, for: {opt_in}",
    )


def nvml_options_of(args: argparse.Namespace) -> NvmlOptions:
    """What the words of both options amount to; ``args.source`` is the source they are for.

    Raises:
        UsageError: A word names no field, or one that cannot be switched, or
            the source is not NVML.
    """
    off, on = _names(args.nvml_off), _names(args.nvml_on)
    if not off and not on:
        return DEFAULT_OPTIONS
    if args.source != "nvml":
        option = "--nvml-off" if off else "--nvml-on"
        raise UsageError(f"{option} is for --source nvml: {args.source} does not ask the driver")
    return nvml_options(off=off, on=on)


def _checked(words: str, *, off: Sequence[str] = (), on: Sequence[str] = ()) -> str:
    """The same words, if they name fields that can be switched so."""
    nvml_options(off=off, on=on)
    return words


def _names(words: list[str]) -> list[str]:
    return [name for word in words for name in word.replace(",", " ").split()]
