"""``--stacks`` and ``--stacks-of`` of ``gpumon serve``: whose stacks are read, and how."""

from __future__ import annotations

import argparse
import logging
import os
import pwd
from typing import TYPE_CHECKING, NamedTuple

from gpumon.core.clock import Clock
from gpumon.errors import UsageError

if TYPE_CHECKING:
    from gpumon.sources.stacks.stack_sampler import StackSampler

_LOG = logging.getLogger("gpumon")
_LONGEST_PERIOD_S = 1.0
_WORKERS = 1
"""Workers whose stacks are read in one sample: the daemon needs the training process's own."""


class StackUsers(NamedTuple):
    """Whose processes are read.

    Attributes:
        uids: ``None``: those of every user.
    """

    uids: frozenset[int] | None


def user_argument(text: str) -> int:
    """The uid of a user that is given by name or number."""
    if text.isdecimal():
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"there is no user {text!r}") from None


def stack_users_of(args: argparse.Namespace) -> StackUsers | None:
    """Whose processes are read; ``None``: no stacks are.

    Raises:
        UsageError: The options contradict each other.
    """
    if not args.stacks:
        if args.stacks_of:
            raise UsageError("--stacks-of needs --stacks")
        return None
    if args.source.startswith("replay:"):
        raise UsageError("--stacks needs a live source, and a recording is none")
    if args.period > _LONGEST_PERIOD_S:
        raise UsageError(
            f"--stacks needs a --period of at most {_LONGEST_PERIOD_S:g} s, to meet pauses while "
            "they last"
        )
    own = os.geteuid()
    if args.stacks_of:
        return StackUsers(frozenset([own, *args.stacks_of]))
    return StackUsers(frozenset([own]) if own else None)


def stack_sampler(users: StackUsers, clock: Clock) -> StackSampler | None:
    """The sampler; ``None``, with a warning: py-spy is not installed."""
    # Only a daemon that takes stack samples needs a megabyte for these.
    from gpumon.sources.stacks.permission import opts_out, refusal
    from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
    from gpumon.sources.stacks.stack_sampler import StackSampler, stacks_of

    program = find_py_spy()
    if program is None:
        _LOG.warning(
            "no stacks are read, for py-spy is not installed in gpumon's own environment: "
            "`gpumon doctor` says how"
        )
        return None

    def refusal_of(pid: int) -> str | None:
        refused = refusal(pid)
        return None if refused is None else f"stacks are not read: {refused.text}"

    may_read = stacks_of(users.uids, refusal_of, opts_out)
    return StackSampler(PySpy(program, clock, most_workers=_WORKERS), clock, may_read)
