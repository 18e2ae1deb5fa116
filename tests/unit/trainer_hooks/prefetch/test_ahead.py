"""Reading ahead, without a framework."""

from __future__ import annotations

import contextvars
import json
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.prefetch import Source, most_ahead, readers
from tests.programs import ran_python
from tests.waiting import until
from trainer_hooks.prefetch.ahead import Host, ahead

LEFT_OPEN = """
import json, os, threading
from trainer_hooks.prefetch.ahead import Host, ahead
batches = iter(ahead(range(1000), 2, Host()))
found = [next(batches)]
while len(batches.gi_frame.f_locals["reader"]._ready) < 2:
    pass
reading, writing = os.pipe()
if os.fork() == 0:
    read = []
    try:
        for batch in batches:
            read.append(batch)
    except RuntimeError as error:
        read.append(str(error))
    os.write(writing, json.dumps(read).encode())
    os._exit(0)
os.wait()
print(os.read(reading, 1000).decode())
"""


class TestBatchesThatAreReadAhead:
    @pytest.mark.parametrize("depth", [1, 2, 7, 100])
    def test_are_the_same_in_the_same_order(self, depth: int) -> None:
        assert list(ahead(range(20), depth, Host())) == list(range(20))

    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_are_ahead_by_at_most_the_depth(self, depth: int) -> None:
        source = Source(range(8))
        assert next(iter(ahead(source, depth, Host()))) == 0
        source = Source(range(8))
        iter(ahead(source, depth, Host()))
        assert source.pulled == 0

        assert most_ahead(ahead(source, depth, Host()), lambda: source.pulled) == depth

    def test_are_not_referenced_after_they_are_returned(self) -> None:
        class Batch:
            pass

        alive: list[weakref.ref[Batch]] = []

        def source() -> Iterator[Batch]:
            for _ in range(10):
                batch = [Batch()]
                alive.append(weakref.ref(batch[0]))
                yield batch.pop()

        most = 0
        batches = ahead(source(), 3, Host())
        for batch in batches:
            del batch
            time.sleep(0.01)
            most = max(most, sum(one() is not None for one in alive))
        assert most <= 3

    def test_are_placed_in_the_thread_and_received_in_the_training_thread(self) -> None:
        class Noting(Host):
            def copy_to_device(self, batch: Any) -> Any:
                return batch, threading.current_thread()

            def receive(self, placed: Any) -> Any:
                return *placed, threading.current_thread()

        ((batch, placed, received),) = ahead(["a batch"], 2, Noting())

        assert batch == "a batch"
        assert placed is not threading.current_thread()
        assert received is threading.current_thread()

    def test_are_read_in_the_context_of_the_training_thread(self) -> None:
        variable = contextvars.ContextVar("variable", default="default")

        def source() -> Iterator[str]:
            yield variable.get()

        variable.set("set")

        assert list(ahead(source(), 2, Host())) == ["set"]


class TestAnError:
    @pytest.mark.parametrize("is_of_placing", [False, True])
    @pytest.mark.parametrize("error", [OSError("torn"), KeyboardInterrupt()], ids=repr)
    def test_is_raised_in_place_of_its_batch(
        self, error: BaseException, is_of_placing: bool
    ) -> None:
        class Placing(Host):
            def copy_to_device(self, batch: int) -> int:
                if batch == 4:
                    raise error
                return batch

        def source() -> Iterator[int]:
            yield from (1, 2, 3)
            if is_of_placing:
                yield 4
            raise error

        batches = ahead(source(), 2, Placing())

        assert [next(batches) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(type(error)) as caught:
            next(batches)
        assert caught.value is error
        assert list(batches) == []
        assert readers() == []


class TestTheThread:
    def test_closes_a_generator_that_is_left_early(self) -> None:
        closed = []

        def source() -> Iterator[int]:
            try:
                yield from range(100)
            finally:
                closed.append(threading.current_thread().name)

        batches = ahead(source(), 2, Host())
        assert next(batches) == 0
        batches.close()

        assert closed == ["gpumon-prefetch"]

    def test_reads_nothing_after_a_loop_is_left(self) -> None:
        source = Source(range(100), seconds=0.02)
        for _ in ahead(source, 2, Host()):
            break

        assert readers() == []
        pulled = source.pulled
        time.sleep(0.06)
        assert source.pulled == pulled

    def test_does_not_delay_exit_and_is_reported_missing_in_a_forked_process(self) -> None:
        done = ran_python("-W", "ignore", "-c", LEFT_OPEN)

        assert (done.returncode, done.stderr) == (0, "")
        *batches, message = json.loads(done.stdout)
        assert batches == [1, 2]
        assert "forked" in message


class TestTheIterable:
    def test_can_be_iterated_over_again_even_at_once(self) -> None:
        batches = ahead([1, 2, 3], 2, Host())

        assert [list(batches), list(batches)] == [[1, 2, 3], [1, 2, 3]]
        assert readers() == []
        assert list(zip(batches, batches, strict=True)) == [(1, 1), (2, 2), (3, 3)]

    def test_has_its_length_and_its_attributes(self) -> None:
        source = Source([1, 2, 3])
        batches = ahead(source, 2, Host())

        assert (len(batches), batches.seconds) == (3, 0.0)
        with pytest.raises(AttributeError):
            _ = batches.no_such_thing
        with pytest.raises(TypeError):
            len(ahead(iter([1, 2]), 2, Host()))

    def test_waits_for_a_batch_being_read_when_it_is_dropped(self) -> None:
        source = Source(range(100), seconds=0.05)
        batches = iter(ahead(source, 2, Host()))
        next(batches)
        assert until(lambda: source.pulled == 2)

        del batches

        assert readers() == []
