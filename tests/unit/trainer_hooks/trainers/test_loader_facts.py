"""Facts about a loader, which stays untouched: its class and its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.facts import encode_facts, parse_facts
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers.loader_facts import loader_facts, report_loader, source_facts

HERE = Path(__file__).name
LIBRARY = """
class Subset:
    def __init__(self, dataset):
        self.dataset = dataset
    def __len__(self):
        return 1

class Joined:
    def __init__(self, *datasets):
        self.datasets = list(datasets)

class DataLoader:
    def __init__(self, dataset, num_workers=0, **settings):
        self.dataset, self.num_workers = dataset, num_workers
        vars(self).update(settings)
    def __len__(self):
        return 3
    def __iter__(self):
        raise AssertionError("iterated")

def repeated(data):
    yield from data

def passed_on(method):
    import functools
    @functools.wraps(method)
    def passed(*args):
        return method(*args)
    return passed
"""


@pytest.fixture(scope="module")
def library() -> ModuleType:
    """A module that was installed."""
    module = ModuleType("some_library")
    file = "/opt/lib/site-packages/some_library/data.py"
    exec(compile(LIBRARY, file, "exec"), vars(module))
    return module


def line_in(method: Callable[..., object]) -> int:
    return method.__code__.co_firstlineno


class Slow:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        raise AssertionError("read a sample")


@dataclass
class Record:
    count: int = 0

    def __getitem__(self, index: int) -> int:
        return index


def batches() -> Iterator[int]:
    yield from range(2)


class Source:
    def __iter__(self) -> Iterator[int]:
        yield 1


SLOW = {
    "class": "Slow",
    "defined_at": f"{HERE}:{vars(Slow).get('__firstlineno__', line_in(Slow.__len__))}",
}


class TestTheSource:
    @pytest.mark.parametrize(
        ("source", "facts"),
        [
            (lambda library: Slow(), SLOW),
            (lambda library: library.Joined(library.Subset(library.Subset(Slow()))), SLOW),
            (lambda library: library.Subset([1, 2]), {"class": "list"}),
            (
                lambda library: batches(),
                {"class": "batches", "defined_at": f"{HERE}:{line_in(batches)}"},
            ),
            (
                lambda library: iter(Source()),
                {"class": "Source.__iter__", "defined_at": f"{HERE}:{line_in(Source.__iter__)}"},
            ),
            (lambda library: library.repeated([1]), {}),
        ],
        ids=["a user's class", "inside a library's wrappers", "a library's innermost class",
             "a generator", "a method", "a library's generator"],
    )  # fmt: skip
    def test_is_the_users_own_class_or_generator(
        self, library: ModuleType, source: Callable[[Any], object], facts: dict[str, str]
    ) -> None:
        assert source_facts(source(library)) == facts

    def test_nameless_source_has_a_location(self) -> None:
        begins_at = sys._getframe().f_lineno
        nameless: list[Any] = [(row for row in [1]), (lambda: (yield))()]

        place = f"{HERE}:{begins_at + 1}"
        assert [source_facts(one) for one in nameless] == [{"defined_at": place}] * 2

    def test_has_the_line_of_written_code_not_of_generated(self, library: ModuleType) -> None:
        class Wrapped:
            @library.passed_on  # type: ignore[untyped-decorator]
            def __getitem__(self, index: int) -> int:
                return index

        inner = Wrapped.__getitem__.__wrapped__
        line = vars(Wrapped).get("__firstlineno__", line_in(inner))

        assert source_facts(Wrapped())["defined_at"] == f"{HERE}:{line}"
        line = vars(Record).get("__firstlineno__", line_in(Record.__getitem__))
        assert source_facts(Record())["defined_at"] == f"{HERE}:{line}"

    def test_reads_no_attribute_of_the_user(self) -> None:
        class Loud:
            def __getattribute__(self, name: str) -> Any:
                raise RuntimeError(name)

        class LoudByClass(type):
            def __getattribute__(cls, name: str) -> Any:
                raise RuntimeError(name)

        class Louder(metaclass=LoudByClass):
            pass

        assert source_facts(Loud())["class"] == "Loud"
        assert source_facts(object.__new__(Louder)) == {}

    def test_ends_where_wrappers_wrap_each_other(self, library: ModuleType) -> None:
        around = library.Subset(None)
        around.dataset = around

        assert source_facts(around) == {"class": "Subset"}


class TestTheFactsOfALoader:
    def test_are_its_settings_and_its_source(self, library: ModuleType) -> None:
        context = SimpleNamespace(_name="spawn")
        settings = {"prefetch_factor": 2, "pin_memory": True, "persistent_workers": False}
        loader = library.DataLoader(
            Slow(), num_workers=1, batch_size=4, multiprocessing_context=context, **settings
        )

        assert loader_facts(loader) == {
            "kind": "DataLoader",
            "adapter": "DataLoader",
            "batch_size": 4,
            "workers": 1,
            "prefetch": 2,
            "pin_memory": True,
            "persistent_workers": False,
            "multiprocessing_context": "spawn",
            "batches": 3,
            **source_facts(Slow()),
        }

    def test_name_the_loaders_class_where_the_data_has_none(self, library: ModuleType) -> None:
        class Own(library.DataLoader):  # type: ignore[misc, name-defined]
            def __len__(self) -> int:
                return 1

        assert loader_facts(Own([1]))["class"] == "Own"
        assert loader_facts(Own(Slow()))["class"] == "Slow"

    @pytest.mark.parametrize(
        ("make", "kind"),
        [(batches, "generator"), (Slow, "iterable"), (lambda: [Slow()], None), (list, None)],
        ids=["a generator", "a user's class", "a list of batches", "an empty list"],
    )
    def test_other_users_class_has_a_kind(
        self, make: Callable[[], object], kind: str | None
    ) -> None:
        assert loader_facts(make()).get("kind") == kind


class TestReporting:
    def recorded(self, writer: RingWriter) -> LoaderFacts:
        return parse_facts(encode_facts(writer.facts)).loader

    def test_includes_the_calling_line(self, writer: RingWriter) -> None:
        line = sys._getframe().f_lineno + 1
        report_loader({"workers": 1}, by_trainer=False)

        assert self.recorded(writer) == {"workers": 1, "made_at": f"{HERE}:{line}"}

    def test_includes_the_line_that_called_the_trainer(self, writer: RingWriter) -> None:
        names: dict[str, Any] = {}
        fit = "def fit(callback): callback()"
        exec(compile(fit, "/opt/lib/site-packages/trainer.py", "exec"), names)

        def callback() -> None:
            report_loader({"workers": 1})

        line = sys._getframe().f_lineno + 1
        names["fit"](callback)

        assert self.recorded(writer)["made_at"] == f"{HERE}:{line}"

    def test_keeps_the_facts_of_the_other_loader(self, writer: RingWriter) -> None:
        report_loader({"workers": 1})
        report_loader({"kind": "arrays", "workers": 2}, validates=True)
        report_loader({"kind": "tf.data"}, validates=True)
        report_loader({"workers": 3})

        named = {
            name: fact for name, fact in self.recorded(writer).items() if "made_at" not in name
        }
        assert named == {"workers": 3, "validation_kind": "tf.data"}

    def test_has_room_for_two_loaders(self, writer: RingWriter) -> None:
        facts: LoaderFacts = {f"persistent_fact_{n}": "\N{GRINNING FACE}" * 48 for n in range(3)}
        facts |= {f"fact_{n}": n for n in range(10)}
        report_loader(facts)
        report_loader(facts, validates=True)

        assert self.recorded(writer) == writer.facts.loader
