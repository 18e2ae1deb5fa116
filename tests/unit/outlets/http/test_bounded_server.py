"""The web server's loop: no exception ends it, and each is logged and counted."""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpumon.outlets.http import bounded_server
from gpumon.outlets.http.bounded_server import (
    BoundedServer,
    Job,
    PoolKind,
    Receiver,
    Reply,
    ServerLimits,
)
from gpumon.outlets.http.clients import Client
from gpumon.outlets.http.faults import FaultLog
from tests.waiting import PATIENCE_S, until

ANSWER = Reply(b"HTTP/1.1 200 OK\r\n\r\nwell\n")
NOTHING = Reply(b"")
BAD = b"GET /bad HTTP/1.1\r\n\r\n"
GOOD = b"GET /good HTTP/1.1\r\n\r\n"


class Fails:
    """Stands in for a function; its first so many calls fail."""

    def __init__(self, well: Callable[..., Any], error: Exception, times: int) -> None:
        self._well, self._error, self.left = well, error, times

    def __call__(self, *words: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self._error
        return self._well(*words)


class Running:
    """A server on loopback that answers everything alike, and its faults."""

    def __init__(self, receive: Receiver, limits: ServerLimits) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._address = listener.getsockname()
        self.faults = FaultLog()
        self.server = BoundedServer(
            [listener],
            receive,
            too_long=lambda: Reply(b"too long"),
            busy=lambda: Reply(b"busy"),
            limits=limits,
            faults=self.faults,
        )

    @property
    def selector(self) -> selectors.BaseSelector:
        return self.server._selector

    def dial(self, head: bytes) -> socket.socket:
        client = socket.create_connection(self._address, timeout=PATIENCE_S)
        client.sendall(head)
        return client

    def ask(self, head: bytes = GOOD) -> Reply:
        """What comes back; nothing where the connection is ended."""
        with self.dial(head) as client:
            try:
                return Reply(client.makefile("rb").read())
            except ConnectionError:
                return NOTHING


def well(head: bytes, client: Client) -> Reply:
    return ANSWER


@contextmanager
def running(receive: Receiver = well, limits: ServerLimits | None = None) -> Iterator[Running]:
    made = Running(receive, limits or ServerLimits())
    made.server.start()
    try:
        yield made
    finally:
        made.server.close()


class TestAFaultOfTheLoop:
    def test_is_survived_logged_once_and_counted_each_time(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with running() as it:
            broken = Fails(it.selector.select, RuntimeError("select is broken"), times=3)
            monkeypatch.setattr(it.selector, "select", broken)
            assert until(lambda: it.ask() == ANSWER and not broken.left)  # each wakes the loop
            after = it.ask()
            state = it.faults.collector_state()

        assert after == ANSWER
        assert (broken.left, state.errors_total, state.success) == (0, 3, False)
        assert state.message == (
            "an iteration of the web server's loop failed: RuntimeError, "
            "see the log of gpumon serve"
        )
        assert caplog.text.count("Traceback") == 1
        assert "RuntimeError: select is broken" in caplog.messages[0]

    def test_is_none_where_it_is_closed(self, caplog: pytest.LogCaptureFixture) -> None:
        with running() as it:
            assert it.ask() == ANSWER

        assert (it.faults.collector_state().errors_total, caplog.messages) == (0, [])


class TestAClientThatCannotBeAccepted:
    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS, errno.EPERM])
    def test_waits_and_is_served_once_it_can(
        self, number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = OSError(number, os.strerror(number))
        with running() as it:
            # As the kernel answers where a limit is reached: the client stays in the backlog.
            accept = Fails(socket.socket.accept, refused, times=2)
            monkeypatch.setattr(socket.socket, "accept", lambda one: accept(one))
            answer = it.ask()
            state = it.faults.collector_state()

        assert (answer, state.errors_total) == (ANSWER, 2)
        (message,) = caplog.messages
        assert message.startswith("a connection cannot be accepted: ")
        assert os.strerror(number) in message
        assert ("Traceback" in caplog.text) is (number == errno.EPERM)

    def test_costs_itself_only_where_no_more_can_be_watched(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As ``epoll_ctl`` answers beyond ``fs.epoll.max_user_watches``."""
        full = OSError(errno.ENOSPC, "no space")
        with running() as it:
            monkeypatch.setattr(it.selector, "register", Fails(it.selector.register, full, 1))
            first, second = it.ask(), it.ask()
            state, places = it.faults.collector_state(), len(it.server._connections)

        assert (first, second, state.errors_total) == (NOTHING, ANSWER, 1)
        assert places <= 1  # the second lingers until it has read its answer


class TestAClientThatCloses:
    def test_leaves_no_connection_that_wakes_the_loop_until_its_deadline(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bounded_server, "_LINGER_S", 600.0)
        with running() as it:
            assert it.ask() == ANSWER

            assert until(lambda: not it.server._connections, 10.0)


class TestAConnectionThatIsKept:
    KEPT = Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwell\n", keeps=True)

    def answered(self, client: socket.socket) -> bytes:
        received = b""
        while len(received) < len(self.KEPT.content):
            block = client.recv(len(self.KEPT.content))
            if not block:
                break
            received += block
        return received

    @pytest.mark.parametrize("is_on_a_thread", [False, True])
    def test_serves_one_request_after_the_other(self, is_on_a_thread: bool) -> None:
        heads: list[bytes] = []

        def receive(head: bytes, client: Client) -> Reply | Job:
            heads.append(head)
            return Job(PoolKind.ANSWER, lambda: self.KEPT) if is_on_a_thread else self.KEPT

        with running(receive) as it, it.dial(GOOD) as client:
            for _ in range(5):
                assert self.answered(client) == self.KEPT.content
                client.sendall(b"\r\n" + GOOD)  # the empty line is of an old client
            assert self.answered(client) == self.KEPT.content
            assert len(it.server._connections) == 1

        assert heads == [GOOD] * 6

    def test_ends_after_the_time_without_a_request(self) -> None:
        limits = ServerLimits(idle_timeout_s=0.3, read_timeout_s=600.0)
        with running(lambda head, client: self.KEPT, limits) as it, it.dial(GOOD) as client:
            assert self.answered(client) == self.KEPT.content

            assert client.recv(1) == b""

    def test_has_only_the_usual_time_for_a_request_that_began(self) -> None:
        limits = ServerLimits(idle_timeout_s=600.0, read_timeout_s=0.3)
        with running(lambda head, client: self.KEPT, limits) as it, it.dial(GOOD) as client:
            assert self.answered(client) == self.KEPT.content
            client.sendall(b"GET")

            assert client.recv(1) == b""

    def test_has_no_more_time_for_a_request_in_single_bytes(self) -> None:
        limits = ServerLimits(idle_timeout_s=600.0, read_timeout_s=0.3)
        with running(lambda head, client: self.KEPT, limits) as it, it.dial(GOOD) as client:
            assert self.answered(client) == self.KEPT.content

            def is_let_go() -> bool:
                try:
                    client.sendall(b"G")
                except OSError:
                    return True
                return False

            assert until(is_let_go, every_s=0.05)

    def test_is_not_kept_where_the_answer_does_not_say_so(self) -> None:
        with running() as it, it.dial(GOOD) as client:
            assert client.makefile("rb").read() == ANSWER.content

    def test_ends_where_more_follows_a_head_which_is_no_request(self) -> None:
        heads: list[bytes] = []

        def receive(head: bytes, client: Client) -> Reply:
            heads.append(head)
            return self.KEPT

        with running(receive) as it:
            answer = it.ask(GOOD + BAD)

        assert (answer.content, heads) == (self.KEPT.content, [GOOD])

    def test_is_closed_before_one_that_sends_its_request(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        limits = ServerLimits(max_connections=3)
        with (
            running(lambda head, client: self.KEPT, limits) as it,
            it.dial(b"GET /slow") as slow,
            it.dial(GOOD) as kept,
            it.dial(GOOD) as other,
        ):
            assert self.answered(kept) == self.answered(other) == self.KEPT.content
            with it.dial(GOOD) as newcomer:
                assert self.answered(newcomer) == self.KEPT.content
                assert kept.recv(1) == b""
            slow.sendall(b" HTTP/1.1\r\n\r\n")
            assert self.answered(slow) == self.KEPT.content

        assert caplog.messages == []

    def test_does_not_wake_the_loop_until_its_time_is_over(self) -> None:
        with running(lambda head, client: self.KEPT) as it, it.dial(GOOD) as client:
            assert self.answered(client) == self.KEPT.content

            assert until(lambda: (it.server._patience_s() or 0.0) > 60.0)

    def test_answers_a_later_fault_with_its_end_and_not_with_an_old_answer(self) -> None:
        def fail() -> Reply:
            raise ZeroDivisionError("a fault")

        def receive(head: bytes, client: Client) -> Job:
            return Job(PoolKind.ANSWER, fail if head == BAD else lambda: self.KEPT)

        with running(receive) as it, it.dial(GOOD) as client:
            assert self.answered(client) == self.KEPT.content
            client.sendall(BAD)

            assert client.recv(1) == b""


class TestAFaultOfOneAnswer:
    def test_ends_its_connection_where_it_is_the_loop_that_fails(self) -> None:
        def receive(head: bytes, client: Client) -> Reply:
            if head == BAD:
                raise ZeroDivisionError("a fault")
            return ANSWER

        with running(receive) as it:
            answers = [it.ask(head) for head in (BAD, GOOD, BAD, GOOD)]
            state = it.faults.collector_state()

        assert answers == [NOTHING, ANSWER, NOTHING, ANSWER]
        assert state.errors_total == 2

    def test_gives_the_place_of_its_thread_back(self) -> None:
        def fail() -> Reply:
            raise ZeroDivisionError("a fault")

        def receive(head: bytes, client: Client) -> Job:
            return Job(PoolKind.ANSWER, fail if head == BAD else lambda: ANSWER)

        limits = ServerLimits(max_threads=1, max_queued=1)
        with running(receive, limits) as it:
            broken = [it.ask(BAD) for _ in range(3)]
            answer = it.ask(GOOD)
            assert until(lambda: it.faults.collector_state().errors_total == 3)

        assert (broken, answer) == ([NOTHING] * 3, ANSWER)

    def test_that_cannot_be_sent_is_dropped_and_the_next_is_made(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def receive(head: bytes, client: Client) -> Job:
            return Job(PoolKind.ANSWER, lambda: ANSWER)

        with running(receive) as it:
            broken = Fails(it.server._answer, MemoryError("no memory"), times=1)
            monkeypatch.setattr(it.server, "_answer", broken)
            first, second = it.ask(), it.ask()

        assert (first, second) == (NOTHING, ANSWER)
        assert it.faults.collector_state().errors_total == 1


class TestTheLogOfFaults:
    @staticmethod
    def fail(faults: FaultLog, number: int = 500) -> None:
        with pytest.raises(OSError, match="made up") as raised:
            raise OSError(number, "made up")
        faults.log("/metrics cannot be answered", raised.value)

    def test_repeats_a_kind_once_a_minute_with_the_number_of_those_in_between(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = [0.0]
        monkeypatch.setattr("time.monotonic", lambda: now_s[0])
        faults = FaultLog()
        success = {0.0: faults.collector_state().success}
        for now_s[0] in [0.0] * 5 + [60.0]:
            self.fail(faults)
        for now_s[0] in (119.0, 120.0):
            success[now_s[0]] = faults.collector_state().success

        first, later = caplog.messages
        assert first.startswith("/metrics cannot be answered: OSError: ")
        assert later.startswith("/metrics cannot be answered (and 4 more ")
        assert caplog.text.count("Traceback") == 1
        assert success == {0.0: True, 119.0: False, 120.0: True}

    def test_has_each_new_kind_at_once_but_a_hundred_at_most(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        faults = FaultLog()

        for number in [*range(200), *range(200)]:
            self.fail(faults, number)

        assert len(caplog.messages) <= 101
        assert faults.collector_state().errors_total == 400
