"""Which user made a connection, by the kernel's own table."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gpumon.outlets.http import peer_user as module
from gpumon.outlets.http.clients import client_of
from gpumon.outlets.http.peer_user import peer_user
from tests.other_users import OTHER_UID, as_root, become
from tests.programs import ran_python

CONNECT_AND_WAIT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    print(one.recv(1))
"""


@contextmanager
def connected(
    family: socket.AddressFamily = socket.AF_INET, to: str = "127.0.0.1"
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and the server's end of its connection."""
    with ExitStack() as stack:
        listens_on = "::1" if to == "::1" else "127.0.0.1"
        kind = socket.AF_INET6 if listens_on == "::1" else socket.AF_INET
        listener = stack.enter_context(socket.socket(kind))
        listener.bind((listens_on, 0))
        listener.listen()
        client = stack.enter_context(socket.socket(family))
        client.connect((to, listener.getsockname()[1]))
        yield client, stack.enter_context(listener.accept()[0])


def user_of(server_end: socket.socket) -> int | None:
    return peer_user(server_end.getpeername()[:2], server_end.getsockname()[:2])


@pytest.mark.parametrize(
    ("family", "to"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::ffff:127.0.0.1"),
    ],
    ids=["IPv4", "IPv6", "IPv4 from a socket of IPv6"],
)
def test_finds_the_user_of_this_process(family: socket.AddressFamily, to: str) -> None:
    with connected(family, to) as (_, server_end):
        assert user_of(server_end) == os.geteuid()


def test_a_client_that_has_closed_is_unknown() -> None:
    with connected() as (client, server_end):
        ends = server_end.getpeername(), server_end.getsockname()
        client.close()

        assert peer_user(*ends) is None


def test_another_port_or_address_is_no_match() -> None:
    with connected() as (_, server_end):
        host, port = server_end.getpeername()
        own = server_end.getsockname()

        assert peer_user(("127.0.0.2", port), own) is None
        assert peer_user((host, port), (own[0], own[1] ^ 1)) is None


@as_root
def test_finds_another_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: list[int | None] = []

        def accept() -> None:
            with listener.accept()[0] as server_end:
                found.append(user_of(server_end))
                server_end.send(b"x")

        import threading

        thread = threading.Thread(target=accept)
        thread.start()
        port = str(listener.getsockname()[1])
        done = ran_python("-c", become(imports="socket") + CONNECT_AND_WAIT, port)
        thread.join()

    assert done.stdout == "b'x'\n", done.stderr
    assert found == [OTHER_UID]


@pytest.mark.parametrize(
    "table",
    [
        "",
        "one line\n",
        "names\n0: short\n",
        "names\n" + "0: A:1 B:2 01 x x x root\n",
        "names\n\0\0\0\n",
    ],
)
def test_a_table_that_cannot_be_read_gives_no_user(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tcp"
    path.write_text(table)
    monkeypatch.setattr(module, "_TABLES", (str(path), "/nowhere"))
    monkeypatch.setattr(module, "_row_end", lambda address, port: "A:1" if port == 1 else "B:2")

    assert peer_user(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


def test_two_users_in_one_row_each_give_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tcp"
    ends = (
        f"{module._words(bytes([127, 0, 0, 1]))}:0001 {module._words(bytes([127, 0, 0, 1]))}:0002"
    )
    path.write_text("".join(["names\n", *(f"0: {ends} 01 x x x {uid}\n" for uid in (7, 8))]))
    monkeypatch.setattr(module, "_TABLES", (str(path),))

    assert peer_user(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


def test_a_client_of_another_machine_has_no_user_here() -> None:
    ends = ("10.1.2.3", 50_000), ("10.1.2.4", 19_835)

    assert client_of("10.1.2.3", "0.0.0.0")._replace(ends=ends).user() is None
