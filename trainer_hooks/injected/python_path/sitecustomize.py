"""Run by each Python that `gpumon run` starts, as it starts; then the user's own ``sitecustomize``.

It imports no framework and none of the hooks. It watches for the import of a framework, replaces
methods of its trainers by thin wrappers, and imports ``trainer_hooks`` when one of these is first
called. Nothing here raises: without the hooks, the methods run as they are.

Every Python must be able to parse this file, from 3.6 on: an old one only records its version.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_OLDEST = (3, 10)
_NOTES = "GPUMON_RUN_NOTES"
"""The variable that names the file in which `gpumon run` learns of each process."""
_MOST_NOTES_BYTES = 65536

_LIGHTNING = ("Trainer", ("fit", "validate", "test", "predict"), "lightning_trainer")
_WATCHED = {
    "keras": ("Model", ("fit", "evaluate", "predict"), "keras_model"),
    "lightning.pytorch": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "transformers.trainer": ("Trainer", ("train", "evaluate", "predict"), "huggingface_trainer"),
    "torch.utils.data": ("DataLoader", ("__iter__",), "torch_loaders"),
}
"""By module: a class of it, the methods to go around, and the module here that does."""


class _OurPackages:
    """Finds ``trainer_hooks`` and the pure core of gpumon where the environment has none.

    It is asked last, and needs no folder on ``sys.path``.
    """

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: object = None
    ) -> "ModuleSpec | None":
        files = {
            "trainer_hooks": ("trainer_hooks", "__init__.py"),
            "gpumon": ("gpumon", "__init__.py"),
            "gpumon.core": ("gpumon", "core", "__init__.py"),
            "gpumon.errors": ("gpumon", "errors.py"),
        }
        if name not in files:
            return None
        from importlib.util import spec_from_file_location

        spec = spec_from_file_location(name, os.path.join(_ROOT, *files[name]))
        if spec is not None and name == "gpumon":
            spec.submodule_search_locations = []  # of it, only what is named here
        return spec


class _Watch:
    """Is asked for each module before all others, and goes around the methods of a framework."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "Any" = None
    ) -> "Any":
        if name not in _WATCHED:
            return None
        try:
            return self._watched_spec(name, path, target)
        except Exception:
            return None  # the other finders are asked as usual

    def _watched_spec(self, name: str, path: "Sequence[str] | None", target: "Any") -> "Any":
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find_spec is None else find_spec(name, path, target)
            if spec is not None:
                _watch_loader(spec.loader)
                return spec
        return None


def _watch_loader(loader: "Any") -> None:
    """Go around the methods once this loader, which is for one module, has executed it."""
    execute = loader.exec_module

    def executed(module: "ModuleType") -> None:
        del loader.exec_module  # the class has it
        execute(module)
        _go_around(module)

    loader.exec_module = executed


def _go_around(module: "Any") -> None:
    """Replace the methods of its class, once."""
    try:
        class_name, methods, hook = _WATCHED[module.__name__]
        kind = getattr(module, class_name)
        for method in methods:
            bare = getattr(kind, method)
            if not hasattr(bare, "_gpumon_hook"):
                setattr(kind, method, _entered(bare, method, hook))
    except Exception:  # a version of the framework without it
        pass


def _entered(bare: "Callable[..., Any]", method: str, hook: str) -> "Callable[..., Any]":
    from functools import wraps

    @wraps(bare)
    def entered(self: "Any", *args: "Any", **named: "Any") -> "Any":
        around = _hook_named(hook)
        if around is None:
            return bare(self, *args, **named)
        return around(method, bare, self, args, named)

    vars(entered)["_gpumon_hook"] = hook
    return entered


_hooks = {}  # type: dict[str, Any]


def _hook_named(name: str) -> "Any":
    """Return ``around`` of that module, which is imported at the first call; ``None``: none."""
    if name not in _hooks:
        _hooks[name] = None  # if it raises, or is called again while it is imported
        try:
            from importlib import import_module

            is_first = "trainer_hooks" not in sys.modules
            package = import_module("trainer_hooks.injected")
            if len(_hooks) == 1:
                vars(package)["script_imported_hooks"] = not is_first
            _hooks[name] = import_module("trainer_hooks.injected." + name).around
            _note(str(os.getpid()))
        except Exception as error:
            _note("failed {}: {}".format(name, error))
    return _hooks[name]


def _note(line: str) -> None:
    """Append a line to the file of `gpumon run`, if it is still there."""
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        notes = os.open(os.environ[_NOTES], flags)
        try:
            if os.fstat(notes).st_size < _MOST_NOTES_BYTES:
                os.write(notes, line.replace("\n", " ")[:200].encode("utf-8", "replace") + b"\n")
        finally:
            os.close(notes)
    except Exception:  # it has ended, or another user runs this
        pass


def _begin() -> None:
    sys.path[:] = [folder for folder in sys.path if folder != _HERE]
    if sys.version_info < _OLDEST:
        _note("old {}.{}".format(*sys.version_info))
        return
    _note(str(os.getpid()))
    sys.meta_path.insert(0, _Watch())
    sys.meta_path.append(_OurPackages())
    for name in _WATCHED:  # imported by a .pth file
        if name in sys.modules:
            _go_around(sys.modules[name])


try:
    _begin()
except Exception:
    pass

# As if this file were not there: without another one, this raises what Python expects.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402, F401
