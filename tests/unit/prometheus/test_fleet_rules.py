"""Tiles of five minutes and an hour, compared with what simulated daemons did.

Scrapes are every 15 s and every minute, in ``make truth`` also every 5 and 45 s. A tile is
evaluated at each whole five minutes, and ends a minute before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.prometheus.builders_promtool import (
    IS_WHOLE,
    RULES,
    Rhythm,
    Spans,
    Story,
    Target,
    Value,
    always,
    daemon,
    within,
)

DAY_S = 86_400.0
TILES = (Rhythm(15, 300, 10), Rhythm(60, 300, 20))
MORE_TILES = (Rhythm(5, 300, 0), Rhythm(45, 300, 35)) if IS_WHOLE else ()
SHARES = {"input_wait": 0.25, "checkpoint": 0.05, "not_in_use": 0.1}
BUSY = 0.6
LOST = 0.3
WATTS = {"busy": 600.0, "lost": 200.0, "not_in_use": 120.0}
"""Power of a GPU in each use."""

pytestmark = pytest.mark.prometheus


@pytest.fixture(params=[*TILES, *MORE_TILES], ids=str)
def rhythm(request: pytest.FixtureRequest) -> Rhythm:
    chosen: Rhythm = request.param
    return chosen


@dataclass
class Fleet(Story):
    """A story whose values are compared with the truth."""

    tests_tiles: bool = True

    def near(self, minute: float, expr: str, value: float, *, within_ratio: float = 0.01) -> Fleet:
        """Expect this value, or one within a share of it."""
        self.at(minute, f"abs(({expr}) - {value}) <= bool {within_ratio * value}", 1)
        return self


def tiles(name: str, minutes: int) -> str:
    """Sum of the tiles of so many minutes up to now."""
    return f"sum(sum_over_time({name}[{minutes * 60 - 1}s]))"


def counting(
    target: Target,
    gpus: Mapping[str, Spans],
    *,
    runs: Mapping[str, str] | None = None,
    before_s: float = 0.0,
) -> Target:
    """A daemon whose GPUs do the same all the time.

    Args:
        target: Its target.
        gpus: When each is absent.
        runs: User by run, each on its own GPU, in the order of the GPUs; "" for others.
        before_s: How long it had counted at minute 0.
    """

    def grows_at(per_second: float, absent: Spans = ()) -> Value:
        def value(second: float) -> float | None:
            if within(second, absent):
                return None
            running_s = target.running_s(second)
            return per_second * (running_s + (before_s if running_s == second else 0.0))

        return value

    daemon(target, gpus)
    target.series = [one for one in target.series if "observed_seconds" not in one[0]]
    for uuid, absent in gpus.items():
        on = {"uuid": uuid}
        target.has("gpumon_gpu_observed_seconds_total", grows_at(1.0, absent), **on)
        target.has("gpumon_gpu_busy_seconds_total", grows_at(BUSY, absent), **on)
        for cause, share in SHARES.items():
            idle = "gpumon_gpu_idle_seconds_total"
            target.has(idle, grows_at(share, absent), **on, cause=cause)
        for reason, part in (("cpu_bound", 0.75), ("unknown", 0.25)):
            name = "gpumon_gpu_input_wait_seconds_total"
            value = grows_at(part * SHARES["input_wait"], absent)
            target.has(name, value, **on, reason=reason)
        for use, share in (("busy", BUSY), ("lost", LOST), ("not_in_use", 0.1)):
            name = "gpumon_gpu_use_energy_joules_total"
            target.has(name, grows_at(share * WATTS[use], absent), **on, use=use)
    by_owner(target, grows_at, list((runs or {}).items()), len(gpus))
    return target


def by_owner(
    target: Target, grows_at: Callable[[float], Value], owners: list[tuple[str, str]], gpus: int
) -> None:
    """What the GPUs did, by run and by user; the last GPUs have neither."""
    owned = owners + [("", "")] * (gpus - len(owners))
    for family, label, names in (
        ("training", "run", [run for run, _ in owned]),
        ("user", "user", [user for _, user in owned]),
    ):
        for owner in dict.fromkeys(names):
            count, whose = names.count(owner), {label: owner}
            target.has(f"gpumon_{family}_gpu_busy_seconds_total", grows_at(BUSY * count), **whose)
            for cause, share in SHARES.items():
                name = f"gpumon_{family}_gpu_idle_seconds_total"
                target.has(name, grows_at(share * count), **whose, cause=cause)


TWO: dict[str, Spans] = {"GPU-0": (), "GPU-1": ()}
OWNERS = {"llama": "ann", "resnet": "bob"}
LOST_BY = {
    "gpu": "host_cause:gpumon_gpu_lost_seconds:increase5m",
    "fleet": "cause:gpumon_gpu_lost_seconds:increase5m",
    "run": "run_cause:gpumon_training_gpu_lost_seconds:increase5m",
    "user": "user_cause:gpumon_user_gpu_lost_seconds:increase5m",
}
OBSERVED = "gpumon:gpu_observed_seconds:increase5m"
EXPECTED = "gpumon:gpu_expected_seconds:increase5m"


class TestTilesOfASteadyFleet:
    def test_add_up_to_what_the_gpus_did(self, rhythm: Rhythm, tmp_path: Path) -> None:
        hosts = [counting(Target(f"{name}:19835"), TWO, runs=OWNERS) for name in "ab"]
        fleet = Fleet(66, tuple(hosts))
        for host in "ab":
            of = f'{{host="{host}"}}'
            fleet.near(65, tiles(f"{LOST_BY['gpu']}{of}", 60), 3600 * 2 * LOST)
            fleet.near(65, tiles(f"host:gpumon_gpu_busy_seconds:increase5m{of}", 60), 7200 * BUSY)
        name = "host_reason:gpumon_gpu_input_wait_seconds:increase5m"
        fleet.near(65, tiles(name + '{reason="cpu_bound"}', 60), 0.75 * 0.25 * 4 * 3600)
        for by in ("host_use", "use"):
            energy = f'{by}:gpumon_gpu_use_energy_joules:increase5m{{use="lost"}}'
            fleet.near(65, tiles(energy, 60), 200 * LOST * 4 * 3600)
        for name in LOST_BY.values():
            fleet.near(65, tiles(name, 60), 4 * 3600 * LOST)
            fleet.near(65, tiles(name + '{cause="input_wait"}', 60), 4 * 3600 * 0.25)
            fleet.at(65, f'{name}{{cause="not_in_use"}}', 0)
        fleet.near(65, tiles(LOST_BY["run"] + '{run="llama"}', 60), 7200 * LOST)
        fleet.near(65, tiles("gpumon:gpu_not_in_use_seconds:increase5m", 60), 4 * 3600 * 0.1)
        fleet.near(65, tiles(OBSERVED, 60), 4 * 3600)
        fleet.near(65, tiles(EXPECTED, 60), 4 * 3600, within_ratio=0)
        fleet.at(65, "sum(gpumon:gpus:count5m)", 4).at(65, "sum(gpumon:hosts:count5m)", 2)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_are_added_up_by_hour(self, rhythm: Rhythm, tmp_path: Path) -> None:
        fleet = Fleet(71, (counting(Target(), TWO, runs=OWNERS),))
        for name in LOST_BY.values():
            hourly = name.replace("5m", "1h")
            fleet.near(70, f"sum({hourly})", 7200 * LOST)
            fleet.near(70, f"sum({hourly}) / {tiles(name, 60)}", 1, within_ratio=1e-9)
        fleet.near(70, "gpumon:gpu_expected_seconds:increase1h", 7200, within_ratio=0)
        fleet.at(70, "sum(gpumon:gpus:count1h)", 2).at(70, "sum(gpumon:hosts:count1h)", 1)

        assert fleet.failures(rhythm, tmp_path) == ""


class TestARunOfThreeSeconds:
    def test_counts_though_no_scrape_sees_it_begin(self, rhythm: Rhythm, tmp_path: Path) -> None:
        target = counting(Target(), {"GPU-0": ()})

        def born_full(second: float) -> float | None:
            return 3.0 if second >= 33 * 60 + 7 else None

        short = {"run": "short"}
        target.has("gpumon_training_gpu_busy_seconds_total", born_full, **short)
        target.has("gpumon_training_gpu_idle_seconds_total", born_full, **short, cause="input_wait")
        compile_ = {"uuid": "GPU-0", "cause": "compile"}
        target.has("gpumon_gpu_idle_seconds_total", born_full, **compile_)
        fleet = Fleet(66, (target,))
        busy = 'run:gpumon_training_gpu_busy_seconds:increase5m{run="short"}'
        fleet.near(65, tiles(busy, 60), 3.0).near(65, f"sum(count_over_time({busy}[1h]))", 1)
        fleet.near(65, tiles(LOST_BY["run"] + '{run="short"}', 60), 3.0)
        fleet.near(65, tiles(LOST_BY["fleet"] + '{cause="compile"}', 60), 3.0)
        fleet.near(65, tiles(LOST_BY["gpu"] + '{cause="compile"}', 60), 3.0)

        assert fleet.failures(rhythm, tmp_path) == ""


def sums_agree(fleet: Fleet, minute: float, minutes: int) -> None:
    """Runs, users, hosts and GPUs lost the same."""
    for name in LOST_BY.values():
        fleet.near(minute, f"{tiles(name, minutes)} / {tiles(LOST_BY['fleet'], minutes)}", 1)


class TestARestart:
    def test_counts_all_but_what_no_scrape_saw(self, rhythm: Rhythm, tmp_path: Path) -> None:
        down = ((42.3, 42.7), (77.2, 78.1))
        target = counting(Target(down=down), TWO, runs=OWNERS, before_s=5 * DAY_S)
        fleet = Fleet(141, (target, counting(Target("b:19835"), TWO, runs=OWNERS)))
        unseen_s = sum(last - first for first, last in down) * 60 + rhythm.scrape_s
        truth_s = 2 * (2 * 7200 - unseen_s)
        fleet.near(140, tiles(OBSERVED, 120), truth_s)
        for name in LOST_BY.values():
            fleet.near(140, tiles(name, 120), truth_s * LOST)
        sums_agree(fleet, 140, 120)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_counts_once_what_begins_after_it(self, rhythm: Rhythm, tmp_path: Path) -> None:
        target = counting(Target(down=((40.2, 40.5),)), {"GPU-0": ()}, before_s=5 * DAY_S)

        def begins(second: float) -> float | None:
            return 0.5 * min(60.0, second - 41 * 60) if second >= 41 * 60 else None

        idle = {"cause": "compile"}
        target.has("gpumon_gpu_idle_seconds_total", begins, uuid="GPU-0", **idle)
        target.has("gpumon_training_gpu_idle_seconds_total", begins, run="new", **idle)
        fleet = Fleet(66, (target,))
        for by in ("gpu", "run", "fleet"):
            fleet.near(65, tiles(LOST_BY[by] + '{cause="compile"}', 60), 30)

        assert fleet.failures(rhythm, tmp_path) == ""

    @pytest.mark.parametrize(
        "starts",
        [(42.3, 44.4), (42.3, 46.1, 52.2, 57.3), (39.05,), (43.95,)],
        ids=["twice in a tile", "in each tile", "as a tile begins", "as a tile ends"],
    )
    def test_loses_at_most_a_tile_if_there_are_several(
        self, starts: tuple[float, ...], rhythm: Rhythm, tmp_path: Path
    ) -> None:
        down = tuple((minute, minute + 0.3) for minute in starts)
        target = counting(Target(down=down), TWO, runs=OWNERS, before_s=5 * DAY_S)
        fleet = Fleet(141, (target,))
        unseen_s = len(starts) * (18 + rhythm.scrape_s / 2)
        lost_s = 300 if len(starts) > 1 else 0
        for name, share in ((OBSERVED, 1.0), (LOST_BY["run"], LOST), (LOST_BY["fleet"], LOST)):
            truth_s = 2 * (7200 - unseen_s - lost_s / 2) * share
            near_ratio = 0.01 + lost_s / 2 / 7200
            fleet.near(140, tiles(name, 120), truth_s, within_ratio=near_ratio)
        sums_agree(fleet, 140, 120)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_after_an_hour_counts_from_its_start(self, rhythm: Rhythm, tmp_path: Path) -> None:
        target = Target(down=((20, 80.4),))
        fleet = Fleet(141, (counting(target, TWO, runs=OWNERS, before_s=5 * DAY_S),))
        for name in LOST_BY.values():
            fleet.near(140, tiles(name, 60), 2 * 60 * (139 - 80.4) * LOST, within_ratio=0.02)

        assert fleet.failures(rhythm, tmp_path) == ""


class TestATargetThatComesLate:
    """It had counted for five days before its first scrape."""

    def test_counts_from_the_tile_after_its_first_scrape(
        self, rhythm: Rhythm, tmp_path: Path
    ) -> None:
        late = Target(undiscovered=((0, 22.4),))
        fleet = Fleet(66, (counting(late, TWO, runs=OWNERS, before_s=5 * DAY_S),))
        for name in (*LOST_BY.values(), OBSERVED):
            share = 1 if name == OBSERVED else LOST
            fleet.near(65, tiles(name, 60), 2 * 60 * (64 - 24) * share)
        sums_agree(fleet, 65, 60)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_counts_from_its_own_start_if_that_was_just_before(
        self, rhythm: Rhythm, tmp_path: Path
    ) -> None:
        new = Target(down=((0, 19.5),))
        fleet = Fleet(126, (counting(new, TWO, runs=OWNERS, before_s=5 * DAY_S),))
        for name in LOST_BY.values():
            fleet.near(125, tiles(name, 120), 2 * 60 * (124 - 19.5) * LOST)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_may_be_a_gpu_that_was_lost_for_ten_minutes(
        self, rhythm: Rhythm, tmp_path: Path
    ) -> None:
        gpus: dict[str, Spans] = {"GPU-0": (), "GPU-1": ((22, 33),)}
        fleet = Fleet(66, (counting(Target(), gpus, before_s=5 * DAY_S),))
        fleet.near(65, tiles(OBSERVED, 60), 7200 - 12 * 60)  # until a tile ends, at minute 34
        fleet.near(65, tiles(LOST_BY["fleet"], 60), (7200 - 12 * 60) * LOST)
        fleet.at(25, "sum(gpumon:gpus:count5m)", 2).at(30, "sum(gpumon:gpus:count5m)", 1)
        fleet.near(65, tiles(EXPECTED, 60), 7200, within_ratio=0)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_of_a_gpu_delays_no_run_of_a_daemon_that_was_scraped(
        self, rhythm: Rhythm, tmp_path: Path
    ) -> None:
        gpus: dict[str, Spans] = {"GPU-0": (), "GPU-1": ((22, 33),)}
        target = counting(Target(), gpus, before_s=5 * DAY_S)
        target.has(
            "gpumon_training_gpu_busy_seconds_total",
            lambda second: 3.0 if second >= 33 * 60 else None,
            run="short",
        )
        busy = 'run:gpumon_training_gpu_busy_seconds:increase5m{run="short"}'
        fleet = Fleet(66, (target,)).near(65, tiles(busy, 60), 3)

        assert fleet.failures(rhythm, tmp_path) == ""


class TestFailedScrapes:
    def test_for_three_minutes_lose_nothing(self, rhythm: Rhythm, tmp_path: Path) -> None:
        target = counting(Target(unscraped=((28, 31),)), TWO, runs=OWNERS, before_s=5 * DAY_S)
        fleet = Fleet(66, (target,))
        for name in LOST_BY.values():
            fleet.near(65, tiles(name, 60), 7200 * LOST)

        assert fleet.failures(rhythm, tmp_path) == ""

    def test_for_a_quarter_of_an_hour_are_missing_coverage_and_no_loss(
        self, rhythm: Rhythm, tmp_path: Path
    ) -> None:
        target = counting(Target(unscraped=((21, 36),)), TWO, runs=OWNERS, before_s=5 * DAY_S)
        fleet = Fleet(66, (target,))
        coverage = f"{tiles(OBSERVED, 60)} / {tiles(EXPECTED, 60)}"
        fleet.near(65, coverage, 0.7, within_ratio=0.03)  # until a tile ends, at minute 39
        fleet.near(65, f"{tiles(LOST_BY['fleet'], 60)} / {tiles(OBSERVED, 60)}", LOST)
        fleet.at(30, f"sum({LOST_BY['fleet']})", 0).at(30, f"count({LOST_BY['fleet']})", 0)

        assert fleet.failures(rhythm, tmp_path) == ""


class TestMissedEvaluations:
    """Tiles of 300 s that were recorded, five of twelve in the second hour."""

    def test_lower_the_coverage_and_leave_the_share_of_the_loss(self, tmp_path: Path) -> None:
        def recorded(value: float) -> Value:
            return lambda second: value if second % 300 == 0 and not 3900 < second <= 6000 else None

        target = Target()
        target.series = [
            (name + labels, recorded(value))
            for name, labels, value in (
                (OBSERVED, "", 600.0),
                (EXPECTED, "", 600.0),
                (LOST_BY["fleet"], '{cause="input_wait"}', 180.0),
            )
        ]
        fleet = Fleet(131, (target,))
        for name, seconds in (
            (OBSERVED, 5 * 600),
            (EXPECTED, 12 * 600),
            (LOST_BY["fleet"], 5 * 180),
        ):
            fleet.at(125, f"sum({name.replace('5m', '1h')})", seconds)

        assert fleet.failures(Rhythm(5, 300, 0), tmp_path) == ""


class TestAHost:
    @pytest.mark.parametrize(
        ("instance", "host"),
        [
            ("node-7:19835", "node-7"),
            ("node-7", "node-7"),
            ("gpu.cluster.example:80", "gpu.cluster.example"),
            ("10.0.0.9:19835", "10.0.0.9"),
            ("[fe80::1]:19835", "fe80::1"),
            ("[fe80::1]", "fe80::1"),
            ("fe80::1", "fe80::1"),
        ],
    )
    def test_is_the_instance_without_its_port(
        self, instance: str, host: str, tmp_path: Path
    ) -> None:
        fleet = Fleet(16, (counting(Target(instance), {"GPU-0": ()}),))
        for name in (LOST_BY["gpu"], "host:gpumon_gpu_observed_seconds:increase5m"):
            fleet.at(15, f'count(count by (host) ({name}{{host="{host}"}}))', 1)
            fleet.at(15, f'count({name}{{host!="{host}"}})', 0)

        assert fleet.failures(TILES[1], tmp_path) == ""

    def test_with_mig_expects_time_of_its_instances_only(self, tmp_path: Path) -> None:
        target = counting(Target(), {"MIG-0": (), "MIG-1": (), "MIG-2": ((7, 99),)})
        name = {"name": "H200", "driver_version": "570.1", "gpu": "0"}
        target.has("gpumon_gpu_info", always(1), uuid="GPU-0", **name)
        for uuid in ("MIG-0", "MIG-1"):
            target.has("gpumon_gpu_mig_info", always(1), uuid=uuid, parent_uuid="GPU-0")
        fleet = Fleet(16, (target,)).near(15, f"sum({EXPECTED})", 600, within_ratio=0)

        assert fleet.failures(TILES[1], tmp_path) == ""


def test_all_tiles_have_the_same_shape_and_end_when_all_scrapes_have_arrived() -> None:
    text = (RULES / "rules.yml").read_text(encoding="utf-8")
    fleet = text.split("- name: gpumon-fleet-5m")[1].split("# The fleet.")[0]
    shapes = set()
    for rule in fleet.split("- record: ")[1:]:
        if ":increase5m\n" not in rule:
            continue
        selectors = set(re.findall(r"(gpumon_\w+_total(?:{[^}]+})?)\[5m\]", rule))
        assert len(selectors) == 1, rule
        shape = rule[rule.index("max_over_time(") : rule.rindex(":last5m\n")]
        shape = shape.replace(selectors.pop(), "COUNTER").replace("uuid:gpumon_gpu", "uuid:gpumon")
        shapes.add(re.sub(r"on \(.+?\) instance(_uuid)?:gpumon", "", " ".join(shape.split())))

    assert len(shapes) == 1, shapes
    ends = set(re.findall(r"gpumon_\w+(?:{[^}]+})?(\[\w+\](?: offset \w+)?)", fleet))
    assert ends == {"[5m] offset 1m", "[5m] offset 6m"}


def test_the_page_on_fleets_lists_every_tile() -> None:
    page = (RULES.parent / "docs" / "fleet.md").read_text(encoding="utf-8")
    text = (RULES / "rules.yml").read_text(encoding="utf-8")
    recorded = re.findall(r"- record: (\S+:(?:increase|count)5m)\n", text)

    assert len(recorded) > 15
    assert [name for name in recorded if f"`{name}`" not in page] == []
