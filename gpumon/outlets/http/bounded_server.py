"""A web server with limits on connections, threads, bytes and time.

One loop holds every connection. A client that has not sent its complete head,
does not read its answer, or keeps its connection for the next request, costs a slot in
that loop and no thread. When all slots are taken, a new client replaces the oldest
connection of the peer that has most of them, first those without a request. The loop
itself answers what takes milliseconds, such as scrapes and health, whatever happens to
the threads. Each other request takes a thread of one of two pools. What follows a head is
never read as a body.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from gpumon.outlets.http.clients import Client, client_of
from gpumon.outlets.http.faults import FaultLog, SeldomLogged
from gpumon.outlets.http.peer_user import End
from gpumon.outlets.http.request import LONGEST_HEAD_BYTES, end_of_head

_LOG = logging.getLogger(__name__)

_LINGER_S: Final = 1.0
"""Time before closing: else a connection is reset before the client has read its answer."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_CHECK_EVERY_S: Final = 0.1
_BACK_OFF_S: Final = 0.1
_MAX_ACCEPTED_AT_ONCE: Final = 64
_BLOCK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits on what clients may use.

    Attributes:
        max_connections: Open connections, streams included.
        max_per_client: Open connections of one peer beyond loopback.
        max_threads: Threads for answers that the loop does not give itself, except streams.
        max_queued: Complete requests that wait for one of them; beyond it: 503.
        max_streams: Event streams, with a thread each; beyond it: 503.
        max_unsent_bytes: Total size of answers that were not read completely.
        read_timeout_s: Time for a client to send the complete head of its request.
        write_timeout_s: Time for a client to read one answer or one event.
        idle_timeout_s: How long a connection is kept for the next request: longer than most
            Prometheus servers wait between scrapes.
        keep_alive_s: How often an idle stream sends a sign of life.
    """

    max_connections: int = 384
    max_per_client: int = 8
    max_threads: int = 4
    max_queued: int = 64
    max_streams: int = 16
    max_unsent_bytes: int = 16 << 20
    read_timeout_s: float = 2.0
    write_timeout_s: float = 5.0
    idle_timeout_s: float = 75.0
    keep_alive_s: float = 5.0


Stream: TypeAlias = Callable[[socket.socket], None]
"""An endless answer: writes to the connection, on the thread that made it."""


class Reply(NamedTuple):
    """A complete answer.

    Attributes:
        content: Head and body.
        keeps: Whether the connection stays open for the next request, as the head promises.
    """

    content: bytes
    keeps: bool = False


class PoolKind(Enum):
    """A pool of threads."""

    ANSWER = auto()
    STREAM = auto()


class Job(NamedTuple):
    """A complete request, to be answered on a thread of a pool."""

    pool: PoolKind
    run: Callable[[], Reply | Stream]


Receiver: TypeAlias = Callable[[bytes, Client], Reply | Job]
"""Parses a complete head. Returns an answer that takes at most milliseconds at once."""


class _Stage(Enum):
    IDLE = auto()  # it has had an answer, and is kept
    READING = auto()  # its head is not complete
    SERVED = auto()  # a thread has it, or will have
    WRITING = auto()  # the client reads its answer
    CLOSING = auto()  # the answer is sent


_NOTHING: Final = Reply(b"")


class _Connection:
    """One connected client."""

    __slots__ = (
        "answer", "client", "head", "held_bytes", "is_alone", "socket", "stage", "unsent",
        "until_s",
    )  # fmt: skip

    def __init__(self, peer_socket: socket.socket, client: Client, until_s: float) -> None:
        self.socket, self.client, self.until_s = peer_socket, client, until_s
        self.stage = _Stage.READING
        self.head = bytearray()
        self.unsent = memoryview(b"")
        self.held_bytes = 0
        self.answer = _NOTHING
        self.is_alone = True  # nothing followed the head of the request


class _Pool:
    """The threads of one kind of request. Only the loop changes the counts."""

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        self.name, self.threads, self.max_waiting = f"gpumon-http-{name}", threads, max_waiting
        self.running = 0
        self.waiting: deque[tuple[_Connection, Job]] = deque()


class BoundedServer:
    """Accepts, counts and times connections; the receiver decides on answers.

    Args:
        listeners: Sockets that listen; the server closes them.
        receive: Parses each head.
        too_long: Makes the answer to a head that is too long.
        busy: Makes the answer if there is no room.
        limits: Limits on what clients may use.
        faults: Counts and logs faults, which never end the server.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        receive: Receiver,
        *,
        too_long: Callable[[], Reply],
        busy: Callable[[], Reply],
        limits: ServerLimits,
        faults: FaultLog,
    ) -> None:
        self._receive, self._limits, self._faults = receive, limits, faults
        self._too_long, self._busy = too_long, busy
        self._pools = {
            PoolKind.ANSWER: _Pool("answer", limits.max_threads, limits.max_queued),
            PoolKind.STREAM: _Pool("stream", limits.max_streams, 0),
        }
        self._connections: dict[socket.socket, _Connection] = {}  # the oldest first
        self._answered: deque[tuple[_Connection, Job]] = deque()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._closing = False
        self._checked_s = 0.0
        self._pushed_out = SeldomLogged()
        self._thread: threading.Thread | None = None
        self._listeners = [*listeners]
        for quiet in (*listeners, self._woken, self._waker):
            quiet.setblocking(False)
        for watched in (*listeners, self._woken):
            self._selector.register(watched, selectors.EVENT_READ)

    @property
    def stream_count(self) -> int:
        """How many event streams are open."""
        return self._pools[PoolKind.STREAM].running

    def start(self) -> None:
        """Begin to answer, on a thread."""
        self._thread = threading.Thread(target=self._loop, name="gpumon-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering, free the ports and end every connection, with its thread."""
        if self._closing:
            return
        self._closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(1.0)
        for connection in [*self._connections.values()]:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)
            connection.socket.close()
        for open_one in (*self._listeners, self._woken, self._waker):
            open_one.close()
        self._selector.close()

    # -- the loop ---------------------------------------------------------------

    def _loop(self) -> None:
        while not self._closing:
            self._run_turn()

    def _run_turn(self) -> None:
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001 - without this thread there are no answers
            if not self._closing:  # else ``close`` has closed its selector
                self._faults.log("an iteration of the web server's loop failed", error)
                time.sleep(_BACK_OFF_S)  # instead of spinning

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience_s()):
            if isinstance(key.data, _Connection):
                with self._ends_connection_on_error(key.data):
                    self._continue(key.data)
            elif key.fileobj is self._woken:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(_BLOCK_BYTES)
            elif isinstance(key.fileobj, socket.socket):
                self._accept(key.fileobj)
        while self._answered:
            self._finish_job(*self._answered.popleft())
        self._drop_late()

    @contextlib.contextmanager
    def _ends_connection_on_error(self, connection: _Connection) -> Iterator[None]:
        """End this connection, and no other, if anything inside fails."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the loop that all connections share must go on
            self._faults.log("a connection was ended", error)
            self._drop(connection)

    def _patience_s(self) -> float | None:
        """How long to wait for clients; ``None`` if no connection has a time limit."""
        limits_s = [
            connection.until_s
            for connection in self._connections.values()
            if connection.stage is not _Stage.SERVED
        ]
        if not limits_s:
            return None
        return max(min(limits_s) - time.monotonic(), 0.0) + _CHECK_EVERY_S

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it wakes up anyway
            self._waker.send(b"\0")

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTED_AT_ONCE):
            try:
                peer_socket, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._faults.log("a connection cannot be accepted", error)
                is_out_of_files = error.errno in (errno.EMFILE, errno.ENFILE)
                if not (is_out_of_files and self._push_out([*self._connections.values()])):
                    time.sleep(_BACK_OFF_S)  # instead of spinning
                return
            try:
                self._admit(peer_socket, (str(address[0]), int(address[1])), listener)
            except Exception as error:  # noqa: BLE001 - the loop goes on without this client
                self._faults.log("a connection cannot be accepted", error)
                self._forget(peer_socket)

    def _admit(self, peer_socket: socket.socket, peer: End, listener: socket.socket) -> None:
        peer_socket.setblocking(False)
        client = client_of(peer[0], listener.getsockname()[0])
        own = peer_socket.getsockname()
        client = client._replace(ends=(peer, (str(own[0]), int(own[1]))))
        until_s = time.monotonic() + self._limits.read_timeout_s
        connection = _Connection(peer_socket, client, until_s)
        has_room = self._make_room(client)
        self._connections[peer_socket] = connection
        self._selector.register(peer_socket, selectors.EVENT_READ, connection)
        if has_room:
            self._continue(connection)  # its head has usually come already
        else:
            self._answer(connection, self._busy())

    def _continue(self, connection: _Connection) -> None:
        try:
            if connection.stage in (_Stage.READING, _Stage.IDLE):
                self._read(connection)
            elif connection.stage is _Stage.WRITING:
                self._send(connection)
            elif not connection.socket.recv(_BLOCK_BYTES):
                self._drop(connection)
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, ValueError, KeyError):  # a selector raises the latter for "gone"
            self._drop(connection)

    def _read(self, connection: _Connection) -> None:
        block = connection.socket.recv(_BLOCK_BYTES)
        if not block:
            self._drop(connection)
            return
        if connection.stage is _Stage.IDLE:
            connection.stage = _Stage.READING
            connection.until_s = time.monotonic() + self._limits.read_timeout_s
        head = connection.head
        searched = len(head)
        # Ignore empty lines before a request (RFC 9112, 2.2).
        head += block if head else block.lstrip(b"\r\n")
        end = end_of_head(head, searched)
        if (len(head) if end is None else end) > LONGEST_HEAD_BYTES:
            self._answer(connection, self._too_long())
        elif end is not None:
            self._serve(connection, bytes(head[:end]))

    def _serve(self, connection: _Connection, head: bytes) -> None:
        # A client that sends more before its answer must send it again: no client should.
        connection.is_alone = len(connection.head) == len(head)
        job = self._receive(head, connection.client)
        connection.head.clear()
        if isinstance(job, Reply):
            self._answer(connection, job)
            return
        self._selector.unregister(connection.socket)
        connection.stage = _Stage.SERVED
        self._begin(connection, job)

    def _begin(self, connection: _Connection, job: Job) -> None:
        pool = self._pools[job.pool]
        if pool.running >= pool.threads:
            if len(pool.waiting) < pool.max_waiting:
                pool.waiting.append((connection, job))
            else:
                self._answer(connection, self._busy())
            return
        thread = threading.Thread(
            target=self._work, args=(connection, job), name=pool.name, daemon=True
        )
        try:
            thread.start()
            pool.running += 1
        except RuntimeError:  # no more threads
            self._answer(connection, self._busy())

    def _finish_job(self, connection: _Connection, job: Job) -> None:
        """Send a thread's answer, and then start the next request of its kind."""
        pool = self._pools[job.pool]
        pool.running -= 1
        with self._ends_connection_on_error(connection):
            self._answer(connection, connection.answer)
        if pool.waiting:
            connection, job = pool.waiting.popleft()
            with self._ends_connection_on_error(connection):
                self._begin(connection, job)

    def _work(self, connection: _Connection, job: Job) -> None:
        try:
            answer = job.run()
            if isinstance(answer, Reply):
                connection.answer = answer
            else:
                connection.socket.settimeout(self._limits.write_timeout_s)
                answer(connection.socket)
        except OSError:
            _LOG.debug("connection from %s was lost", connection.client.key, exc_info=True)
        except Exception as error:  # noqa: BLE001 - a fault in one answer must not end the server
            self._faults.log("a request handler failed", error)
        finally:  # always give the thread back
            self._answered.append((connection, job))
            self._wake()

    def _answer(self, connection: _Connection, answer: Reply) -> None:
        connection.answer = answer
        connection.unsent = memoryview(answer.content)
        connection.held_bytes = len(answer.content)  # they stay until all of them are sent
        was_served = connection.stage is _Stage.SERVED
        connection.stage = _Stage.WRITING
        connection.until_s = time.monotonic() + self._limits.write_timeout_s
        try:
            connection.socket.setblocking(False)
            if was_served:
                self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)
            else:
                self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        except (OSError, ValueError):
            self._drop(connection)
            return
        self._continue(connection)
        writing = [
            connection
            for connection in self._connections.values()
            if connection.stage is _Stage.WRITING
        ]
        if sum(connection.held_bytes for connection in writing) > self._limits.max_unsent_bytes:
            self._push_out(writing)

    def _send(self, connection: _Connection) -> None:
        while connection.unsent:
            sent = connection.socket.send(connection.unsent)
            connection.unsent = connection.unsent[sent:]
        keeps = connection.answer.keeps and connection.is_alone
        connection.unsent, connection.answer = memoryview(b""), _NOTHING
        if keeps:
            connection.stage = _Stage.IDLE
            connection.until_s = time.monotonic() + self._limits.idle_timeout_s
        else:
            connection.socket.shutdown(socket.SHUT_WR)
            connection.stage = _Stage.CLOSING
            connection.until_s = time.monotonic() + _LINGER_S
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    # -- room -------------------------------------------------------------------

    def _make_room(self, client: Client) -> bool:
        """End connections until a new client has room; ``False``: none can be ended."""
        while crowd := self._crowd(client):
            if not self._push_out(crowd):
                return False
        return True

    def _crowd(self, client: Client) -> list[_Connection]:
        """Connections among which one must end before this client has room."""
        connections = [*self._connections.values()]
        own = [connection for connection in connections if connection.client.key == client.key]
        if not client.is_local and len(own) >= self._limits.max_per_client:
            return own
        return connections if len(connections) >= self._limits.max_connections else []

    def _push_out(self, among: Sequence[_Connection]) -> bool:
        """End a connection of the peer with most, except those that a thread serves.

        The oldest of those without a request, else the oldest.
        """
        slow = [connection for connection in among if connection.stage is not _Stage.SERVED]
        if not slow:
            return False
        greediest, count = Counter(connection.client.key for connection in slow).most_common(1)[0]
        theirs = [connection for connection in slow if connection.client.key == greediest]
        idle = next((one for one in theirs if one.stage is _Stage.IDLE), None)
        self._drop(idle or theirs[0])
        if idle is not None:
            return True
        suppressed = self._pushed_out.suppressed()
        if suppressed is not None:
            _LOG.warning(
                "the web server is full: closed the oldest of %d slow connections from %s (and "
                "%d more since the last line)",
                count, greediest, suppressed,
            )  # fmt: skip
        return True

    def _drop_late(self) -> None:
        now_s = time.monotonic()
        if now_s - self._checked_s < _CHECK_EVERY_S:
            return
        self._checked_s = now_s
        for connection in [*self._connections.values()]:
            if connection.stage is not _Stage.SERVED and connection.until_s < now_s:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection.stage is _Stage.WRITING:  # else the kernel keeps the rest for minutes
            with contextlib.suppress(OSError):
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._forget(connection.socket)

    def _forget(self, peer_socket: socket.socket) -> None:
        self._connections.pop(peer_socket, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer_socket)
        peer_socket.close()
