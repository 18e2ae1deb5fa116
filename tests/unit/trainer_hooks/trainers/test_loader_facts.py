"""Specification of what is said of a loader, untouched: whose it is, and how it is set."""

from __future__ import annotations

import functools
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
    def __init__(self, dataset, num_workers=0, **said):
        self.dataset, self.num_workers = dataset, num_workers
        vars(self).update(said)
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
        raise AssertionError("asked for a sample")


class Rows(Slow):
    """What it does is in the class that it derives from."""


@dataclass
class Record:
    count: int = 0

    def __getitem__(self, index: int) -> int:
        return index


def batches() -> Iterator[int]:
    yield from range(2)


class TestWhoseDataTheyAre:
    def test_is_the_user_s_own_class_and_where_it_is_defined(self) -> None:
        line = vars(Slow).get("__firstlineno__", line_in(Slow.__len__))

        assert source_facts(Slow()) == {"class": "Slow", "defined_at": f"{HERE}:{line}"}

    def test_is_what_is_inside_a_library_s_wrappers(self, library: ModuleType) -> None:
        joined = library.Joined(library.Subset(library.Subset(Slow())))

        assert source_facts(joined) == source_facts(Slow())

    def test_is_the_innermost_class_of_a_library_where_there_is_no_other(
        self, library: ModuleType
    ) -> None:
        assert source_facts(library.Subset([1, 2])) == {"class": "list"}

    def test_is_a_generator_s_function(self) -> None:
        assert source_facts(batches()) == {
            "class": "batches",
            "defined_at": f"{HERE}:{line_in(batches)}",
        }

    def test_is_a_method_with_its_class_where_that_makes_the_generator(self) -> None:
        class Source:
            def __iter__(self) -> Iterator[int]:
                yield 1

        assert source_facts(iter(Source()))["class"] == "Source.__iter__"

    def test_is_a_place_without_a_name_where_that_reports_nothing(self) -> None:
        begins_at = sys._getframe().f_lineno
        nameless: list[Any] = [(row for row in [1]), (lambda: (yield))()]

        place = f"{HERE}:{begins_at + 1}"
        assert [source_facts(one) for one in nameless] == [{"defined_at": place}] * 2

    def test_is_no_one_s_where_a_library_s_generator_gives_them(self, library: ModuleType) -> None:
        assert source_facts(library.repeated([1])) == {}

    def test_has_no_line_where_nothing_is_written_in_the_class(self) -> None:
        recorded = source_facts(Rows())

        assert recorded["class"] == "Rows"
        assert ("defined_at" in recorded) is ("__firstlineno__" in vars(Rows))

    def test_has_the_line_of_what_is_written_and_not_of_what_was_made_for_it(
        self, library: ModuleType
    ) -> None:
        class Wrapped:
            @library.passed_on  # type: ignore[untyped-decorator]
            def __getitem__(self, index: int) -> int:
                return index

        inner = Wrapped.__getitem__.__wrapped__
        line = vars(Wrapped).get("__firstlineno__", line_in(inner))

        assert source_facts(Wrapped())["defined_at"] == f"{HERE}:{line}"
        line = vars(Record).get("__firstlineno__", line_in(Record.__getitem__))
        assert source_facts(Record())["defined_at"] == f"{HERE}:{line}"

    @pytest.mark.parametrize("one", [7, b"", range(3), functools.partial(int), len, type, None])
    def test_of_what_is_written_in_c_has_no_place(self, one: object) -> None:
        assert "defined_at" not in source_facts(one)

    def test_is_asked_of_no_attribute_of_the_user_s(self) -> None:
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

    def test_never_ends_where_wrappers_wrap_each_other(self, library: ModuleType) -> None:
        around = library.Subset(None)
        around.dataset = around

        assert source_facts(around) == {"class": "Subset"}


class TestTheFactsOfALoader:
    def test_say_how_it_is_set_and_whose_data_it_loads(self, library: ModuleType) -> None:
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

    def test_name_the_loader_s_own_class_where_the_data_have_none(
        self, library: ModuleType
    ) -> None:
        class Own(library.DataLoader):  # type: ignore[misc, name-defined]
            def __len__(self) -> int:
                return 1

        assert loader_facts(Own([1]))["class"] == "Own"
        assert loader_facts(Own(Slow()))["class"] == "Slow"

    def test_stay_where_the_data_are_odd(self, library: ModuleType) -> None:
        class Odd:
            @property  # type: ignore[misc]
            def __class__(self) -> type:
                raise RuntimeError

            def __bool__(self) -> bool:
                raise RuntimeError

        assert loader_facts(library.DataLoader(Odd(), num_workers=2))["workers"] == 2

    @pytest.mark.parametrize(
        ("make", "kind"),
        [(batches, "generator"), (Slow, "iterable"), (lambda: [Slow()], None), (list, None)],
        ids=["a generator", "of one's own", "a list of batches", "an empty list"],
    )
    def test_of_something_else_say_what_is_the_user_s_own(
        self, make: Callable[[], object], kind: str | None
    ) -> None:
        assert loader_facts(make()).get("kind") == kind

    def test_of_a_library_s_generator_say_its_kind_alone(self, library: ModuleType) -> None:
        assert loader_facts(library.repeated([1])) == {"kind": "generator"}

    def test_are_short_whatever_the_names(self) -> None:
        huge = type("\N{GRINNING FACE}" * 5_000, (Slow,), {"__module__": __name__})

        assert len(str(source_facts(huge())["class"])) <= 48


class TestTellingOfThem:
    def recorded(self, writer: RingWriter) -> LoaderFacts:
        return parse_facts(encode_facts(writer.facts)).loader

    def test_reports_where_it_was_asked_for(self, writer: RingWriter) -> None:
        line = sys._getframe().f_lineno + 1
        report_loader({"workers": 1}, by_trainer=False)

        assert self.recorded(writer) == {"workers": 1, "made_at": f"{HERE}:{line}"}

    def test_reports_who_called_the_trainer_and_not_the_callback_that_it_calls(
        self, writer: RingWriter
    ) -> None:
        names: dict[str, Any] = {}
        fit = "def fit(callback): callback()"
        exec(compile(fit, "/opt/lib/site-packages/trainer.py", "exec"), names)

        def callback() -> None:
            report_loader({"workers": 1})

        line = sys._getframe().f_lineno + 1
        names["fit"](callback)

        assert self.recorded(writer)["made_at"] == f"{HERE}:{line}"

    def test_keeps_what_belongs_to_the_other_loader(self, writer: RingWriter) -> None:
        report_loader({"workers": 1})
        report_loader({"kind": "arrays", "workers": 2}, validates=True)
        report_loader({"kind": "tf.data"}, validates=True)
        report_loader({"workers": 3})

        named = {
            name: fact for name, fact in self.recorded(writer).items() if "made_at" not in name
        }
        assert named == {"workers": 3, "validation_kind": "tf.data"}

    def test_has_room_for_all_that_two_loaders_say(self, writer: RingWriter) -> None:
        facts: LoaderFacts = {f"persistent_fact_{n}": "\N{GRINNING FACE}" * 48 for n in range(3)}
        facts |= {f"fact_{n}": n for n in range(10)}
        report_loader(facts)
        report_loader(facts, validates=True)

        assert self.recorded(writer) == writer.facts.loader
