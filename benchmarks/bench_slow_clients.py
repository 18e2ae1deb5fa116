"""How long does a scrape of ``gpumon serve`` take beside clients that never complete their request?

    python -m benchmarks.bench_slow_clients

A thousand scrapes of a daemon with eight GPUs of the fake libnvidia-ml.so.1, alone and beside two
hundred half-open clients, in turns.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_serve import CASES, GPUMON, WARM_UP_S, WORK, Peer, memory_folder
from tests.half_open_clients import half_open_clients, quantile, scrape_times

SCRAPES, HALF_OPEN, ROUNDS = 1_000, 200, 3
P99_GOAL_S = 0.05


def main() -> int:
    """Print the times; 1 where the goal is missed."""
    times_s: dict[int, list[float]] = {0: [], HALF_OPEN: []}
    with (
        tempfile.TemporaryDirectory(dir=memory_folder()) as folder,
        Peer(GPUMON, CASES[WORK], Path(folder) / "peer", is_burning=False) as peer,
    ):
        time.sleep(WARM_UP_S)
        address = f"127.0.0.1:{peer.port}"
        for _ in range(ROUNDS):
            for clients, taken_s in times_s.items():
                with half_open_clients(address, clients):
                    taken_s += scrape_times(address, SCRAPES)
    p50_s, p99_s = ({n: quantile(sorted(t), q) for n, t in times_s.items()} for q in (0.5, 0.99))
    print(f"{ROUNDS} times {SCRAPES} scrapes, all answered, milliseconds:")
    for clients in times_s:
        print(
            f"  with {clients:>3} half-open clients: p50 {1e3 * p50_s[clients]:.1f}, "
            f"p99 {1e3 * p99_s[clients]:.1f}"
        )
    ratio = p99_s[HALF_OPEN] / p99_s[0]
    goal = f"goal: at most {1e3 * P99_GOAL_S:.0f} ms with them"
    print(f"  ratio: p50 {p50_s[HALF_OPEN] / p50_s[0]:.2f}, p99 {ratio:.2f} ({goal})")
    return int(p99_s[HALF_OPEN] > P99_GOAL_S)


if __name__ == "__main__":
    sys.exit(main())
