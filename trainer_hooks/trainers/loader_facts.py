"""Facts about a loader, also inside Keras' adapters, from attributes only: class, workers, stages.

Nothing is iterated, no worker is started, no source is read.
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
from trainer_hooks.ring.call_frames import caller_named, is_users_own, line_of, users_line
from trainer_hooks.ring.process_ring import describe_run, process_ring
from trainer_hooks.taps import keras_private as private

_ATTRIBUTES: Final = {
    "batch_size": "batch_size",
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "pin_memory": "pin_memory",
    "persistent_workers": "persistent_workers",
}
_WE_KEEP: Final = ("_original", "_data", "_source")
"""Attributes where gpumon's wrappers keep what they wrap."""
_MOST_WRAPPERS: Final = 8


class _Code(NamedTuple):
    """Code of the user's that produces data: a class or a generator."""

    name: str
    place: str | None


def loader_facts(loader: Any) -> LoaderFacts:  # noqa: ANN401
    """Return facts about a loader like torch's or about the user's own data; else an empty dict.

    Of several loaders, in a list or by name, the first is described.

    Args:
        loader: What is iterated over.

    Returns:
        ``kind`` (``DataLoader``, ``generator``, or ``iterable`` for an object of
        a class of the user's own), the keys of ``source_facts``, and for a
        DataLoader ``adapter`` (its class) and where known ``batch_size``,
        ``batches``, ``workers``, ``prefetch``, ``pin_memory``,
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
    except Exception:  # noqa: BLE001 (whatever a loader is, the run continues)
        return {}


def source_facts(*sources: object) -> LoaderFacts:
    """Return ``class``, and ``defined_at`` if the data's class is the user's own.

    Args:
        sources: Datasets, loaders or generators, or ``None``; what they wrap is
            inspected, too.

    Returns:
        ``class``: the first class or generator of the user's own, else the class of
        the first dataset. ``defined_at``: ``file.py:LINE``; before Python 3.13 the
        line of a class is that of its first method.

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
    """Write facts about the training or the validation loader into the ring. Never raises.

    Adds ``made_at``, the line of the user's own code that made it.

    Args:
        facts: About the loader; empty if nothing is known.
        validates: Whether it is a validation's.
        by_trainer: Whether a trainer calls, which the user's own code has called.
    """
    writer = process_ring().writer
    if writer is None:
        return
    line = users_line(calls_library=by_trainer)
    if facts and line is not None:
        facts = {**facts, "made_at": line}
    written = writer.facts.loader
    if not validates:
        kept = {name: fact for name, fact in written.items() if name.startswith(VALIDATION_FACTS)}
        describe_run(loader={**facts, **kept})
        return
    kept = {name: fact for name, fact in written.items() if not name.startswith(VALIDATION_FACTS)}
    describe_run(loader=kept | {f"{VALIDATION_FACTS}{name}": fact for name, fact in facts.items()})


def has_facts(facts: LoaderFacts, *, validates: bool) -> bool:
    """Whether these describe the training loader, or that of a validation."""
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
    """Return the first class or generator of the user's own among datasets and what they wrap."""
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
    """Yield the code of methods written in a class, without generated ones."""
    for method in vars(kind).values():
        for _ in range(_MOST_WRAPPERS):
            if not isinstance(method, FunctionType) or "__wrapped__" not in vars(method):
                break
            method = vars(method)["__wrapped__"]
        is_of_its_module = isinstance(method, FunctionType) and method.__module__ == kind.__module__
        if is_of_its_module and not method.__code__.co_filename.startswith("<"):
            yield method.__code__


def _layers(source: object) -> Iterator[object]:
    """Yield a dataset and what it wraps, as far as libraries and gpumon do so."""
    for _ in range(_MOST_WRAPPERS):
        yield source
        if type(source) is GeneratorType or _class_code(type(source)) is not None:
            return  # not what the user's own object contains
        source = _inner(source)
        if source is None:
            return


def _inner(wrapper: Any) -> object:  # noqa: ANN401
    """Return what a wrapper of a library or of gpumon takes its samples from; ``None``: nothing."""
    if type(wrapper).__module__.startswith("trainer_hooks."):
        kept = [getattr(wrapper, name, None) for name in _WE_KEEP]
    else:  # as torch's ``Subset`` does, and its ``ConcatDataset``
        kept = [getattr(wrapper, "dataset", None), _first(getattr(wrapper, "datasets", None))]
    return next((found for found in kept if found is not None), None)


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


_KIND_OF_ADAPTER: Final = {
    "ArrayDataAdapter": "arrays",
    "GeneratorDataAdapter": "generator",
    "GrainDatasetAdapter": "grain",
    "PyDatasetAdapter": "PyDataset",
    "TFDatasetAdapter": "tf.data",
    "TorchDataLoaderAdapter": "DataLoader",
}
_PREFETCHES: Final = frozenset({"PrefetchDataset", "_PrefetchDataset"})
_CACHES: Final = frozenset({"CacheDataset", "_CacheDataset"})
_MOST_STAGES: Final = 32


def feeder_of_caller() -> Any | None:  # noqa: ANN401
    """Return Keras' epoch iterator of the calling run, if found. It has the ``data_adapter``."""
    return caller_named("epoch_iterator", lambda found: hasattr(found, "data_adapter"))


def facts_of(feeder: Any | None) -> LoaderFacts:  # noqa: ANN401
    """Return facts about the data of an epoch iterator; empty for ``None``."""
    return {} if feeder is None else adapter_facts(feeder.data_adapter)


def adapter_facts(adapter: Any) -> LoaderFacts:  # noqa: ANN401
    """Return facts about the data of a ``fit``. Reads attributes only; never raises.

    Args:
        adapter: A data adapter of Keras 3, on any backend.

    Returns:
        ``adapter`` (its class), ``kind`` (``arrays, tf.data, PyDataset,
        generator, DataLoader, grain``, else the class), and where known
        ``batch_size`` (samples) and ``batches`` (per epoch). For a PyDataset also
        ``workers``, ``use_multiprocessing``, ``max_queue_size`` (batches) and
        ``epoch_hooks``, its own methods called between epochs; for it and for a
        generator the keys of ``source_facts``; for a DataLoader those of
        ``loader_facts``; for tf.data ``cache`` and ``parallel``, whether any
        stage does so, and ``prefetch`` where one does: TensorFlow may add that
        stage by itself, unseen.
    """
    name = type(adapter).__name__
    facts: LoaderFacts = {"adapter": name, "kind": _KIND_OF_ADAPTER.get(name, name)}
    try:
        if name == "TorchDataLoaderAdapter":
            facts = {**loader_facts(getattr(adapter, private.LOADER)), **facts}
        elif name == "TFDatasetAdapter":
            facts |= _stages(getattr(adapter, private.TF_DATASET))
        elif name == "GeneratorDataAdapter":
            facts |= source_facts(_peeked_into(adapter.generator))
        seen = {
            "batch_size": getattr(adapter, "batch_size", None),
            "batches": getattr(adapter, "num_batches", None),
        }
        dataset = getattr(adapter, "py_dataset", None)
        for attribute in ("workers", "use_multiprocessing", "max_queue_size"):
            seen[attribute] = getattr(dataset, attribute, None)
        facts |= {key: value for key, value in seen.items() if isinstance(value, int)}
        if dataset is not None:
            facts |= {**source_facts(dataset), **_epoch_hooks(type(dataset))}
    except Exception:  # noqa: BLE001 (another Keras may keep them elsewhere)
        return facts
    return facts


def _epoch_hooks(kind: type[Any]) -> LoaderFacts:
    """Return which methods a user's PyDataset has for the end and the beginning of an epoch."""
    own = []
    for name in ("on_epoch_end", "on_epoch_begin"):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None and owner.__name__ != "PyDataset":
            own.append(name)
    return {"epoch_hooks": " and ".join(own)} if own else {}


def _peeked_into(restored: Any) -> object:  # noqa: ANN401
    """Return the user's generator: Keras keeps a function that puts the first batches back."""
    cells = dict(zip(restored.__code__.co_freevars, restored.__closure__ or (), strict=True))
    kept: object = cells["generator"].cell_contents
    return kept


def _stages(dataset: Any) -> LoaderFacts:  # noqa: ANN401
    """Describe a tf.data pipeline by the class names of its stages."""
    stages: set[str] = set()
    for _ in range(_MOST_STAGES):
        if dataset is None:
            break
        stages.add(type(dataset).__name__)
        dataset = getattr(dataset, "_input_dataset", None)
    facts: LoaderFacts = {
        "cache": bool(stages & _CACHES),
        "parallel": any("Parallel" in stage for stage in stages),
    }
    return facts | {"prefetch": True} if stages & _PREFETCHES else facts
