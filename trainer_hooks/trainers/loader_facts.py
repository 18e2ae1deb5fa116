"""What can be said of a loader without touching it: whose it is, how many workers, how far ahead.

Only attributes are looked at: nothing is iterated, no worker is started, no source is read.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, GeneratorType
from typing import Any, Final, NamedTuple

from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.facts import MAX_CLASS_NAME, VALIDATION_FACTS
from gpumon.core.wording import label_text
from trainer_hooks.ring.call_frames import is_users_own, line_of, users_line
from trainer_hooks.ring.process_ring import describe_run, process_ring

_ATTRIBUTES: Final = {
    "batch_size": "batch_size",
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "pin_memory": "pin_memory",
    "persistent_workers": "persistent_workers",
}
_WE_KEEP: Final = ("_original", "_data", "_source")
"""Where our own wrappers have what they wrap."""
_MOST_WRAPPERS: Final = 8


class _Code(NamedTuple):
    """Code of a user's own that gives data: a class, or a generator."""

    name: str
    place: str | None


def loader_facts(loader: Any) -> LoaderFacts:  # noqa: ANN401
    """Facts about a loader shaped like torch's, or about a user's own data; of anything else, none.

    Of several loaders, in a list or by name, it is the first.

    Args:
        loader: What is iterated over.

    Returns:
        ``kind`` (``DataLoader``, ``generator``, or ``iterable`` for another
        object of a class of the user's own), what ``source_facts`` says of the
        data, and for a DataLoader ``adapter`` (its class) and what can be seen of
        ``batch_size``, ``batches``, ``workers``, ``prefetch``, ``pin_memory``,
        ``persistent_workers`` and ``multiprocessing_context``.

    >>> loader_facts([1, 2, 3])
    {}
    """
    try:
        first = _first(loader)
        if hasattr(first, "num_workers"):
            return {**_settings(first), **source_facts(getattr(first, "dataset", None), first)}
        if first is not loader:  # a batch, say
            return {}
        is_generator = type(_innermost(loader)) is GeneratorType
        named = source_facts(loader) if is_generator or _users_own([loader]) else {}
        if not named and not is_generator:
            return {}
        return {"kind": "generator" if is_generator else "iterable", **named}
    except Exception:  # noqa: BLE001 (whatever a loader is, the training goes on)
        return {}


def source_facts(*sources: object) -> LoaderFacts:
    """Whose the data are: ``class``, and ``defined_at`` where that is the user's own.

    Args:
        sources: Data sets, loaders or generators, ``None`` among them; those
            that they wrap are looked at, too.

    Returns:
        ``class``: the first class or generator of the user's own, else the class of
        the first data set; nothing of what has no name. ``defined_at``:
        ``file.py:LINE``; before Python 3.13 the line of a class is that of its
        first method.

    >>> source_facts(None, [1, 2, 3])
    {'class': 'list'}
    """
    try:
        given = [source for source in sources if source is not None]
        own = _users_own(given)
        if own is None:
            innermost = _innermost(given[0]) if given else None
            has_name = innermost is not None and type(innermost) is not GeneratorType
            return {"class": _short(type(innermost).__name__)} if has_name else {}
        facts: LoaderFacts = {} if own.name.startswith("<") else {"class": _short(own.name)}
        return facts if own.place is None else {**facts, "defined_at": own.place}
    except Exception:  # noqa: BLE001
        return {}


def report_loader(facts: LoaderFacts, *, validates: bool = False, by_trainer: bool = True) -> None:
    """Say in the ring's first page on what is trained, or validated; of the other, all stays.

    Adds ``made_at``, the line of the user's own code that asked for it. Never raises.

    Args:
        facts: About the loader; empty: nothing is known of it.
        validates: Whether it is the one of a validation.
        by_trainer: Whether a trainer calls, which the user's own code has called.
    """
    writer = process_ring().writer
    if writer is None:
        return
    line = users_line(calls_library=by_trainer)
    if facts and line is not None:
        facts = {**facts, "made_at": line}
    told = writer.facts.loader
    if not validates:
        kept = {name: fact for name, fact in told.items() if name.startswith(VALIDATION_FACTS)}
        describe_run(loader={**facts, **kept})
        return
    kept = {name: fact for name, fact in told.items() if not name.startswith(VALIDATION_FACTS)}
    describe_run(loader=kept | {f"{VALIDATION_FACTS}{name}": fact for name, fact in facts.items()})


def has_facts(facts: LoaderFacts, *, validates: bool) -> bool:
    """Whether these say anything of what is trained on, or of what is validated on."""
    return any(name.startswith(VALIDATION_FACTS) is validates for name in facts)


def _settings(loader: Any) -> LoaderFacts:  # noqa: ANN401
    facts: LoaderFacts = {"kind": "DataLoader", "adapter": _short(type(loader).__name__)}
    for name, attribute in _ATTRIBUTES.items():
        value = getattr(loader, attribute, None)
        if isinstance(value, int):
            facts[name] = value
    if "batch_size" not in facts:  # a sampler of whole batches knows it
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        facts.update({"batch_size": size} if isinstance(size, int) else {})
    context = getattr(getattr(loader, "multiprocessing_context", None), "_name", None)
    facts.update({"multiprocessing_context": context} if isinstance(context, str) else {})
    with contextlib.suppress(TypeError, NotImplementedError):  # a stream has no length
        facts["batches"] = len(loader)
    return facts


def _users_own(sources: Iterable[object]) -> _Code | None:
    """The first class or generator of a user's own among data sets and those that they wrap."""
    for source in sources:
        for layer in _layers(source):
            is_generator = type(layer) is GeneratorType
            own = _generator_code(layer) if is_generator else _class_code(type(layer))
            if own is not None:
                return own
    return None


def _generator_code(generator: Any) -> _Code | None:  # noqa: ANN401
    code: CodeType = generator.gi_code
    if not is_users_own(code.co_filename):
        return None
    _, _, name = generator.__qualname__.rpartition("<locals>.")
    return _Code(name, line_of(code.co_filename, code.co_firstlineno))


def _class_code(kind: type[Any]) -> _Code | None:
    codes = [code for code in _codes_in(kind) if is_users_own(code.co_filename)]
    if codes:
        first = min(codes, key=lambda code: code.co_firstlineno)
        line = vars(kind).get("__firstlineno__", first.co_firstlineno)
        return _Code(kind.__name__, line_of(first.co_filename, line))
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return _Code(kind.__name__, None) if isinstance(file, str) and is_users_own(file) else None


def _codes_in(kind: type[Any]) -> Iterator[CodeType]:
    """Of the methods that are written in a class, and of none that somebody made for it."""
    for method in vars(kind).values():
        for _ in range(_MOST_WRAPPERS):
            if not isinstance(method, FunctionType) or "__wrapped__" not in vars(method):
                break
            method = vars(method)["__wrapped__"]
        is_of_its_module = isinstance(method, FunctionType) and method.__module__ == kind.__module__
        if is_of_its_module and not method.__code__.co_filename.startswith("<"):
            yield method.__code__


def _layers(source: object) -> Iterator[object]:
    """A data set, and what it wraps, as far as libraries and we do so."""
    for _ in range(_MOST_WRAPPERS):
        yield source
        if type(source) is GeneratorType or _class_code(type(source)) is not None:
            return  # what a user's own has inside is not asked for
        source = _inner(source)
        if source is None:
            return


def _inner(wrapper: Any) -> object:  # noqa: ANN401
    """What a library's data set, or one of ours, takes its samples from; ``None``: nothing."""
    if type(wrapper).__module__.startswith("trainer_hooks."):
        kept = [getattr(wrapper, name, None) for name in _WE_KEEP]
    else:  # as torch's ``Subset`` does, and its ``ConcatDataset``
        kept = [getattr(wrapper, "dataset", None), _first(getattr(wrapper, "datasets", None))]
    return next((one for one in kept if one is not None), None)


def _innermost(source: object) -> object:
    *_, innermost = _layers(source)
    return innermost


def _short(name: str) -> str:
    return label_text(name, MAX_CLASS_NAME)


def _first(loaders: Any) -> Any:  # noqa: ANN401
    if isinstance(loaders, dict):
        return _first(next(iter(loaders.values())))
    if isinstance(loaders, (list, tuple)):
        return _first(loaders[0])
    return loaders
