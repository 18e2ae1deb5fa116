"""The module ``pynvml``, which must be the one of the distribution nvidia-ml-py.

Other distributions install a module of the same name: pynvml before 12, and nvidia-ml-py3. All code
imports ``pynvml`` from here, so that a wrong module leads to one sentence with the command that
fixes it, before anything is called.
"""

from __future__ import annotations

import shlex
import sys
from types import ModuleType
from typing import Final

from gpumon.errors import SourceUnavailableError

__all__ = ["pynvml"]

_OLDEST: Final = "12.535"
"""As in ``pyproject.toml``; older ones lack some of ``_NEEDED``."""

_NEEDED: Final = (
    "NVMLError", "NVML_TEMPERATURE_GPU", "c_nvmlEventData_t", "c_nvmlFieldValue_t",
    "c_nvmlMemory_t", "c_nvmlMemory_v2_t", "c_nvmlProcessInfo_v2_t",
    "c_nvmlProcessUtilizationSample_t", "nvmlInit", "nvmlLib", "nvmlMemory_v2", "nvmlPciInfo_t",
    "nvmlShutdown",
)  # fmt: skip


def is_fit(module: ModuleType) -> bool:
    """Whether gpumon can use that module: it has all names, and opens the library itself.

    In a package that only re-exports another module, ``nvmlLib`` stays ``None``.
    """
    if not all(hasattr(module, name) for name in _NEEDED):
        return False
    return getattr(module.nvmlInit, "__globals__", None) is vars(module)


def refusal(module: ModuleType | None) -> SourceUnavailableError:
    """Name the file that is in the way, and the command that fixes it; ``None``: no import."""
    where = None if module is None else module.__file__
    found = "but it cannot be imported" if where is None else f"but found {where}"
    pip = f"{shlex.quote(sys.executable or 'python3')} -m pip"
    return SourceUnavailableError(
        f"gpumon needs the module pynvml of nvidia-ml-py {_OLDEST} or newer, {found}: run "
        f"`{pip} uninstall -y pynvml nvidia-ml-py3 && {pip} install --force-reinstall "
        "nvidia-ml-py`, and rename the file if it is your own, then start gpumon again"
    )


try:
    import pynvml
except Exception as error:  # one for Python 2 is a SyntaxError
    raise refusal(None) from error
if not is_fit(pynvml):
    raise refusal(pynvml)
