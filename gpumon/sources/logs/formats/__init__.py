"""One file a format: whatever file here has a ``FORMAT`` is one; nothing else lists them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from gpumon.sources.logs.gpu_log import GpuLog


@cache
def formats() -> tuple[type[GpuLog], ...]:
    """Every format there is, in the order in which a log is held against them."""
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    found = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return tuple(sorted(found, key=lambda one: (one.is_last_resort, one.title)))
