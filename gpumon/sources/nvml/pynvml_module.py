"""The module ``pynvml``, which must be the one of the distribution nvidia-ml-py.

Other distributions install a module of the same name: pynvml before 12, and nvidia-ml-py3. All code
imports ``pynvml`` from here, so that a wrong module leads to one sentence with the command that
fixes it, before anything is called.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from gpumon.core.wording import listed
from gpumon.errors import SourceUnavailableError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["pynvml"]

_OURS: Final = "nvidia-ml-py"
_OLDEST: Final = "12.535"
"""As in ``pyproject.toml``; older ones lack some of ``_NEEDED``."""

_NEEDED: Final = (
    "NVMLError", "NVML_TEMPERATURE_GPU", "c_nvmlEventData_t", "c_nvmlFieldValue_t",
    "c_nvmlMemory_t", "c_nvmlMemory_v2_t", "c_nvmlProcessInfo_v2_t",
    "c_nvmlProcessUtilizationSample_t", "nvmlInit", "nvmlLib", "nvmlMemory_v2", "nvmlPciInfo_t",
    "nvmlShutdown",
)  # fmt: skip
_FILES: Final = frozenset({"pynvml.py", "pynvml/__init__.py"})


def is_fit(module: ModuleType) -> bool:
    """Whether gpumon can use that module: it has all names, and opens the library itself.

    In a package that only re-exports another module, ``nvmlLib`` stays ``None``.
    """
    if not all(hasattr(module, name) for name in _NEEDED):
        return False
    return getattr(module.nvmlInit, "__globals__", None) is vars(module)


def refusal(module: ModuleType | None, installed: Sequence[Distribution]) -> SourceUnavailableError:
    """Name the package that is in the way, and the command that fixes it.

    Args:
        module: The unfit module that was imported as ``pynvml``; ``None``: none was.
        installed: The distributions with a module of that name.
    """
    ours = next((found for found in installed if _name(found) == _OURS), None)
    others = {_name(found): found for found in installed if _name(found) != _OURS}
    if others:
        named = listed([f"{name} {other.version}" for name, other in others.items()])
        verb = "installs" if len(others) == 1 else "install"
        what = f"gpumon needs the module pynvml of {_OURS}, and {named} {verb} another one"
    elif module is not None and not _is_from(module, ours):
        return SourceUnavailableError(
            f"{module.__file__} hides the module pynvml of {_OURS}, which gpumon needs: rename "
            "that file or take its folder out of PYTHONPATH, then start gpumon again"
        )
    elif ours is None:
        what = f"the module pynvml of {_OURS} is not installed"
    elif module is None:
        what = f"the module pynvml of {_OURS} {ours.version} is missing or damaged"
    else:
        what = f"{_OURS} {ours.version} is too old for gpumon, which needs {_OLDEST} or newer"
    return SourceUnavailableError(f"{what}: run `{_command([*others])}`, then start gpumon again")


def _command(unwanted: Sequence[str]) -> str:
    """Reinstall in any case: removing one of two distributions may remove a file of both."""
    pip = f"{shlex.quote(sys.executable or 'python3')} -m pip"
    remove = f"{pip} uninstall -y {' '.join(unwanted)} && " if unwanted else ""
    return f"{remove}{pip} install --force-reinstall {_OURS}"


def _name(distribution: Distribution) -> str:
    """The normalised name: ``nvidia_ml_py3`` and ``nvidia-ml-py3`` are one."""
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()


def _is_from(module: ModuleType, distribution: Distribution | None) -> bool:
    if distribution is None or module.__file__ is None:
        return False
    folder = Path(str(distribution.locate_file(""))).resolve()
    return Path(module.__file__).resolve().parent in (folder, folder / "pynvml")


def _brings_pynvml(distribution: Distribution) -> bool:
    if "pynvml" in (distribution.read_text("top_level.txt") or "").split():
        return True
    return any(str(file) in _FILES for file in distribution.files or ())


def _with_pynvml() -> list[Distribution]:
    from importlib.metadata import distributions  # takes memory that no daemon needs

    return [found for found in distributions() if _brings_pynvml(found)]


try:
    import pynvml
except Exception as error:  # one for Python 2 is a SyntaxError
    raise refusal(None, _with_pynvml()) from error
if not is_fit(pynvml):
    raise refusal(pynvml, _with_pynvml())
