"""What the shell says to the tests: the few words that are meant for them, and nothing else."""

from __future__ import annotations

import os
from typing import Final

SWITCHES: Final = frozenset(
    {
        "GPUMON_FUZZ_SECONDS",
        "GPUMON_FUZZ_SEED",
        "GPUMON_PUBLIC_LOGS",
        "GPUMON_REQUIRE_KERAS",
        "GPUMON_SCREENSHOTS",
        "GPUMON_SOAK_SECONDS",
        "GPUMON_UPDATE_GOLDEN",
        "GPUMON_WHOLE_TABLE",
    }
)
"""What each says stands in ``tests/README.md``."""
_PREFIX: Final = "GPUMON_"


def forget_the_shell() -> None:
    """Take gpumon's variables out of this process' environment, and so out of its children's."""
    for name in [name for name in os.environ if name.startswith(_PREFIX)]:
        if name not in SWITCHES:
            del os.environ[name]
