"""What a command says, and what is true of it whatever the input: no traceback, one sentence."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Final

from gpumon.cli.main import main

_SENTENCES: Final = re.compile(r"(gpumon: [^\n]+\n)+")


def command_output(*words: str) -> tuple[int, str, str]:
    """What the command says in this process: its code, its output, its complaint."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def check_output(code: int, out: str, err: str) -> None:
    """It has done its work and reported nothing else, or failed and reported why."""
    assert code in (0, 1, 2), (code, err)
    assert "Traceback" not in err
    assert out or err
    if code == 0:
        assert err == ""
    else:
        assert _SENTENCES.fullmatch(err), err
    out.encode()  # no lone surrogate, which a terminal's encoding would refuse
