"""Specification of what somebody is told whose trainer is not installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize(
    ("module", "missing", "what_to_do"),
    [
        ("trainer_hooks.huggingface", ("transformers",), "pip install 'transformers[torch]'"),
        ("trainer_hooks.lightning", ("lightning", "pytorch_lightning"), "pip install lightning"),
        ("trainer_hooks", ("keras",), "`pip install keras`"),
    ],
)
def test_a_tagger_names_what_to_install(
    module: str, missing: tuple[str, ...], what_to_do: str
) -> None:
    if any(map(find_spec, missing)):
        pytest.skip(f"{' or '.join(missing)} is installed here")
    words = f"from {module} import PhaseTagger\nPhaseTagger()"

    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert what_to_do in done.stderr.splitlines()[-1]
