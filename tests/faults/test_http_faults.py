"""What people, networks and disks do to the outlets, and what must be left standing."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpumon.errors import GpumonError
from gpumon.outlets.bounded_server import ServerLimits
from gpumon.outlets.http_server import HttpServer
from gpumon.outlets.metric_values import READERS, MetricView, Row
from gpumon.outlets.state_file import StateFile
from tests.builders_state import S, monitor_state, run, starved_gpu
from tests.serving import ask, dial, serving, until

QUICK = ServerLimits(read_timeout_s=0.5, write_timeout_s=0.5, keep_alive_s=0.1)


def metric(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def threads_of(server: HttpServer) -> int:
    """Threads that serve a connection now."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@contextlib.contextmanager
def held(connections: Iterable[socket.socket]) -> Iterator[list[socket.socket]]:
    kept = list(connections)
    try:
        yield kept
    finally:
        for connection in kept:
            connection.close()


class TestACollectorThatRaises:
    """Fault 2."""

    def test_costs_its_own_family_and_the_scrape_says_so(self) -> None:
        def broken(view: MetricView) -> Iterable[Row]:
            raise OSError("driver/library version mismatch")

        readers = {**READERS, "gpumon_gpu_temperature_celsius": broken}
        with serving(monitor_state(), readers=readers) as server:
            answer = ask(server, "/metrics")

        assert answer.status == 200
        assert metric(answer.text, "gpumon_collector_success")[("metrics_gpu_now",)] == 0.0
        assert len(metric(answer.text, "gpumon_gpu_busy_seconds_total")) == 2
        assert len(metric(answer.text, "gpumon_gpu_power_watts")) == 1
        assert metric(answer.text, "gpumon_gpu_temperature_celsius") == {}


class TestHostileNames:
    """Fault 13."""

    @pytest.mark.parametrize(
        "name",
        [os.fsdecode(b"caf\xff"), "two\nlines", "x" * 1_000_000, "\u202egnp.exe", 'q"uo\\te', "\0"],
        ids=["not-utf8", "newline", "megabyte", "rtl", "quotes", "nul"],
    )
    def test_leave_the_scrape_valid_and_short(self, name: str) -> None:
        state = monitor_state(runs=(run(name, job=name, framework=name),))
        with serving(state) as server:
            scraped, told = ask(server, "/metrics"), ask(server, "/api/v1/state")

        labels = next(iter(metric(scraped.text, "gpumon_training_run_info")))
        assert all(len(label) <= 128 and label.isprintable() for label in labels)
        assert len(scraped.body) < 40_000
        assert json.loads(told.body)["runs"][0]["steps"] == 1234

    def test_by_the_thousand_are_capped_and_counted(self) -> None:
        """Fault 14."""
        runs = tuple(run(f"loop-{number}") for number in range(10_000))
        with serving(monitor_state(runs=runs)) as server:
            text = ask(server, "/metrics").text

        assert len(metric(text, "gpumon_training_steps_total")) == 64
        dropped = metric(text, "gpumon_label_sets_dropped_total")
        assert dropped[("gpumon_training",)] == 10_000 - 64


class TestClientsThatHoldOn:
    """Fault 19."""

    def test_are_let_go_when_they_never_finish_their_request(self) -> None:
        with serving(monitor_state(), limits=QUICK) as server, held([dial(server)]) as silent:
            assert silent[0].recv(100) == b""

    def test_are_let_go_even_when_they_drip_on(self) -> None:
        started = time.monotonic()

        with (
            serving(monitor_state(), limits=QUICK) as server,
            held([dial(server, b"GET /metrics HTTP/1.1\r\n")]) as dripping,
            contextlib.suppress(OSError),
        ):
            while time.monotonic() - started < 4.0:
                dripping[0].sendall(b"X-Drip: 1\r\n")
                time.sleep(0.1)

        assert time.monotonic() - started < 2.5

    def test_never_take_more_than_32_places_and_the_next_is_told_503(self) -> None:
        with (
            serving(monitor_state()) as server,
            held(
                dial(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n") for _ in range(200)
            ) as all_200,
        ):
            assert until(lambda: threads_of(server) == 32)
            refused = 0
            for connection in all_200[32:]:
                connection.settimeout(5)
                with contextlib.suppress(ConnectionError):
                    refused += connection.recv(100).startswith(b"HTTP/1.1 503 ")

            assert threads_of(server) == 32
            assert refused >= 150
            assert ask(server, "/metrics").status == 503

    def test_give_their_places_back(self) -> None:
        with (
            serving(monitor_state(), limits=QUICK) as server,
            held(dial(server, b"GET / HT") for _ in range(200)),
        ):
            assert until(lambda: threads_of(server) == 0)
            assert ask(server, "/metrics").status == 200

    @pytest.mark.parametrize(
        "sent",
        [
            b"\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
            b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
            b"GET / HTTP/1.1\r\nHost: " + b"\xff" * 100 + b"\r\n\r\n",
            b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        ],
        ids=["empty", "tls-hello", "long-line", "version", "headers", "bytes-in-host", "body"],
    )
    def test_or_talk_nonsense_harm_nobody_else(self, sent: bytes) -> None:
        with serving(monitor_state(), limits=QUICK) as server:
            with held([dial(server)]) as talking, contextlib.suppress(OSError):
                talking[0].sendall(sent)
                assert not talking[0].recv(15).endswith(b" 200")

            assert ask(server, "/metrics").status == 200


class TestStreamsThatAreNotRead:
    """Fault 20."""

    ASKING = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def test_are_dropped_and_never_hold_the_sampler_up(self) -> None:
        much = monitor_state(gpus=tuple(starved_gpu() for _ in range(64)))
        with serving(much, limits=QUICK) as server:
            lazy = socket.socket()
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.connect((server.host, server.port))
            lazy.sendall(self.ASKING)
            assert until(lambda: threads_of(server) == 1)
            slowest_s = 0.0
            ticks = 0
            while threads_of(server) and ticks < 400:
                started = time.monotonic()
                server.publish(much)
                slowest_s = max(slowest_s, time.monotonic() - started)
                ticks += 1
                time.sleep(0.02)
            dropped = until(lambda: threads_of(server) == 0)
            lazy.close()

        assert dropped
        assert slowest_s < 0.5
        # The kernel on its own would take megabytes for a client that reads nothing.
        assert ticks < 60

    def test_never_take_more_than_16_places_and_leave_room_for_scrapes(self) -> None:
        with (
            serving(monitor_state()) as server,
            held(dial(server, self.ASKING) for _ in range(20)) as streams,
        ):
            starts = [stream.recv(12) for stream in streams]

            assert starts.count(b"HTTP/1.1 200") == 16
            assert starts.count(b"HTTP/1.1 503") == 4
            assert ask(server, "/metrics").status == 200

    def test_give_their_places_back(self) -> None:
        with serving(monitor_state(), limits=QUICK) as server:
            with held(dial(server, self.ASKING) for _ in range(16)) as streams:
                assert [stream.recv(12) for stream in streams] == [b"HTTP/1.1 200"] * 16
            server.publish(monitor_state())

            assert until(lambda: threads_of(server) == 0)
            with held([dial(server, self.ASKING)]) as again:
                assert again[0].recv(12) == b"HTTP/1.1 200"


class TestAPortInUse:
    """Fault 21."""

    def test_is_one_sentence_with_the_port_the_pid_and_a_way_out_at_once(self) -> None:
        with serving() as first:
            started = time.monotonic()
            with pytest.raises(GpumonError) as caught, serving(listen=first.address):
                pass
            took_s = time.monotonic() - started

        name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
        assert str(caught.value) == (
            f"port {first.port} on 127.0.0.1 is in use by pid {os.getpid()} ({name}): "
            "stop it, or take another port, try --listen 127.0.0.1:0"
        )
        assert caught.value.exit_code == 1
        assert took_s < 1.0


class TestTwoScrapers:
    """Fault 22."""

    def test_of_different_rhythm_read_the_same_counters(self) -> None:
        with serving() as server:
            often: list[str] = []
            for tick in range(1, 7):
                runs = tuple(run(f"r{number}") for number in range(70))
                gpu = starved_gpu()
                server.publish(monitor_state(gpus=(gpu,), runs=runs, samples_total=tick))
                often.append(ask(server, "/metrics").text)
            seldom = ask(server, "/metrics").text

        assert often[-1] == seldom
        dropped = metric(seldom, "gpumon_label_sets_dropped_total")
        assert dropped[("gpumon_training",)] == 6 * 6

    def test_at_once_under_a_busy_publisher_always_read_sums_that_close(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        open_sums: list[float] = []
        done = threading.Event()
        try:
            with serving() as server:
                server.publish(monitor_state())

                def scrape() -> None:
                    while not done.is_set():
                        text = ask(server, "/metrics").text
                        observed = metric(text, "gpumon_gpu_observed_seconds_total")
                        told = sum(metric(text, "gpumon_gpu_busy_seconds_total").values())
                        told += sum(metric(text, "gpumon_gpu_idle_seconds_total").values())
                        told += sum(metric(text, "gpumon_gpu_idle_pending_seconds").values())
                        open_sums.append(sum(observed.values()) - told)

                scrapers = [threading.Thread(target=scrape) for _ in range(2)]
                for scraper in scrapers:
                    scraper.start()
                for tick in range(100):
                    server.publish(monitor_state(taken_at_ns=1_000 * S + tick, samples_total=tick))
                    time.sleep(0.01)
                done.set()
                for scraper in scrapers:
                    scraper.join(5)
        finally:
            done.set()
            sys.setswitchinterval(before)

        assert len(open_sums) > 4
        assert max(map(abs, open_sums)) < 1e-6


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """No file may grow beyond 100 bytes, as on a disk that is all but full.

    Never around a whole test: pytest's own output may be a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


class TestAFullDisk:
    """Fault 24."""

    def test_keeps_the_last_whole_state_and_leaves_no_rest(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "state.json").write_text("{}")
        file = StateFile(tmp_path / "state.json")

        with caplog.at_level(logging.WARNING), no_room():
            for _ in range(3):
                file.write(monitor_state())

        assert (tmp_path / "state.json").read_text() == "{}"
        assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
        assert file.errors_total == 3
        assert "File too large; sampling goes on" in caplog.text
        assert len(caplog.records) == 1

    def test_is_written_to_again_when_there_is_room(self, tmp_path: Path) -> None:
        file = StateFile(tmp_path / "state.json")
        with no_room():
            file.write(monitor_state())

        file.write(monitor_state())

        assert json.loads(file.path.read_text())["schema"] == "gpumon.state/1"

    def test_of_device_full_is_survived_too(self, tmp_path: Path) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("/dev/full is not there")
        (tmp_path / "state.json").symlink_to("/dev/full")
        file = StateFile(tmp_path / "state.json")

        file.write(monitor_state())

        # The rename replaces the link itself: nothing is written through it.
        assert not (tmp_path / "state.json").is_symlink()
        assert file.errors_total == 0


class TestNoFileDescriptorsLeft:
    """Fault 24."""

    def test_does_not_spin_and_serves_again_when_there_are(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with serving(monitor_state()) as server:
            client = socket.socket()
            highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
            blockers: list[int] = []
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
                with contextlib.suppress(OSError):
                    while True:
                        blockers.append(os.dup(0))
                client.connect((server.host, server.port))
                used_s = time.process_time()
                time.sleep(0.5)
                used_s = time.process_time() - used_s
            finally:
                for blocker in blockers:
                    os.close(blocker)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                client.close()

            assert used_s < 0.25
            assert ask(server, "/metrics").status == 200
