"""Many clients at different addresses, in a network namespace of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needed
from tests.other_users import as_root
from tests.training_processes import run_to_its_end

PROLOGUE = """
import http.client, json, socket
from gpumon.outlets.http.bounded_server import ServerLimits
from tests.builders.state import monitor_state
from tests.serving import is_open, serving

def dial(peer, sent=b"GET / HT"):
    client = socket.create_connection((here, port), timeout=20, source_address=(peer, 0))
    client.sendall(sent)
    return client

def scrape(peer):
    client = http.client.HTTPConnection(here, port, timeout=20, source_address=(peer, 0))
    client.request("GET", "/metrics")
    return client.getresponse().status

"""


def in_a_network_of_its_own(program: str, here: str) -> Any:
    """What a program prints that serves at ``here``, where all of 10.9/16 and 2001:db8/32 is."""
    needed("ip", "iproute2")
    setup = (
        "ip link set lo up && ip route add local 10.9.0.0/16 dev lo && "
        "{ ip -6 route add local 2001:db8::/32 dev lo && "
        "echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind || true; } 2>/dev/null; exec "
    )
    listen = f"[{here}]:0" if ":" in here else f"{here}:0"
    body = "".join(f"    {line}\n" for line in program.strip().splitlines())
    # No one is late here, however busy the machine is: who leaves was pushed out.
    patient = "limits=ServerLimits(read_timeout_s=60.0)"
    served = f"with serving(monitor_state(), listen={listen!r}, {patient}) as server:"
    whole = f"{PROLOGUE}here = {here!r}\n{served}\n    port = server.port\n{body}"
    alone = (needed("unshare", "util-linux"), "-n", "sh", "-c", setup + '"$@"', "sh")
    ended = run_to_its_end(whole, Path("/nowhere"), before=alone, timeout_s=60)
    if "unshare:" in ended.stderr:
        pytest.skip(f"no network of one's own here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


pytestmark = as_root


class TestManyGreedyPeers:
    def test_do_not_disconnect_a_peer_with_fewer_connections(self) -> None:
        modest, greedy = in_a_network_of_its_own(
            """
modest = [dial("10.9.1.1") for _ in range(3)]
greedy = [dial(f"10.9.2.{number // 8}") for number in range(8, 8 * 60)]
assert scrape("10.9.3.1") == 200  # stands behind all of them
print(json.dumps([sum(map(is_open, modest)), sum(map(is_open, greedy))]))
""",
            "10.9.0.1",
        )

        assert modest == 3
        assert 384 - 3 - 2 <= greedy <= 384 - 3

    def test_of_one_ipv6_network_count_as_one_peer(self) -> None:
        if not Path("/proc/net/if_inet6").exists():
            pytest.skip("no IPv6 here")
        one, another = in_a_network_of_its_own(
            """
one = [dial(f"2001:db8:1:1::{number:x}") for number in range(1, 31)]
another = [dial(f"2001:db8:1:2::{number:x}") for number in range(1, 5)]
assert scrape("2001:db8:1:1::ffff") == 200
print(json.dumps([sum(map(is_open, one)), sum(map(is_open, another))]))
""",
            "2001:db8::1",
        )

        assert one <= 8
        assert another == 4
