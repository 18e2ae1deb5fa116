"""``gpumon report --prometheus``: what many machines lost, from a Prometheus server."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from typing import Final

from gpumon.cli.command import check_path, number_argument, print_error
from gpumon.core.fleet.fleet_report import DIMENSIONS, FleetReport, Prices
from gpumon.errors import NothingToJudgeError, UsageError
from gpumon.sources.system_clock import SystemClock

_BY_CAUSE: Final = "cause"
_PRICE: Final = number_argument(float, "a price: use a number such as 2.50", 0, 1_000_000)
_ONLY_HERE: Final = (("--price", "price"), ("--price-kwh", "price_kwh"), ("--by", "by"),
                     ("--http-config", "http_config"))  # fmt: skip
_NOT_HERE: Final = (
    ("RECORDING", "recording"),
    ("--compare", "compare"),
    ("--run", "run_name"),
    ("--fail-if-starved-above", "fail_if_starved_above"),
)


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of a report on many machines."""
    fleet = parser.add_argument_group("many machines")
    fleet.add_argument(
        "--prometheus",
        metavar="URL",
        help="a report on all hosts that this Prometheus scrapes, by the rules of "
        "prometheus/rules.yml; --since is 7d by default, or 1d before there are hourly figures",
    )
    fleet.add_argument(
        "--by",
        choices=[*(dimension.name for dimension in DIMENSIONS), _BY_CAUSE],
        help="who lost most, by one of these only",
    )
    fleet.add_argument(
        "--price", metavar="PRICE", type=_PRICE, help="what a GPU-hour costs, in any currency"
    )
    fleet.add_argument(
        "--price-kwh", metavar="PRICE", type=_PRICE, help="what a kWh costs, in the same"
    )
    fleet.add_argument(
        "--http-config",
        metavar="FILE",
        help="credentials and TLS, in the form of Prometheus' http_config",
    )


def check_fleet_arguments(args: argparse.Namespace) -> None:
    """Refuse arguments that do not go together.

    Raises:
        UsageError: One of them is for the other kind of report.
    """
    if args.prometheus is None:
        for option, name in _ONLY_HERE:
            if getattr(args, name) is not None:
                raise UsageError(f"{option} is for a report on many machines: add --prometheus URL")
        return
    for option, name in _NOT_HERE:
        if getattr(args, name) is not None:
            raise UsageError(f"{option} cannot be combined with --prometheus")


def run_fleet_report(args: argparse.Namespace) -> int:
    """Print the report, write its page, and compare it with a limit; return the exit code."""
    from gpumon.cli.live_line import asking
    from gpumon.sources.prometheus.api import PrometheusApi
    from gpumon.sources.prometheus.fleet_source import read_fleet_report
    from gpumon.sources.prometheus.http_config import HttpAccess, read_http_config

    if args.html is not None:
        from gpumon.outlets.atomic_write import check_folder

        check_path(args.html, None)
        check_folder(args.html)
    access = HttpAccess() if args.http_config is None else read_http_config(args.http_config)
    with (
        closing(PrometheusApi(args.prometheus, access)) as api,
        asking(api.address, sys.stderr) as api.on_answer,
    ):
        if api.sends_secrets_openly:
            print_error(f"note: credentials go to {api.address} unencrypted: use https")
        report = read_fleet_report(
            api,
            args.since,
            SystemClock(),
            prices=Prices(args.price, args.price_kwh),
            dimensions=[one for one in DIMENSIONS if args.by in (None, one.name)],
        )
    _print(report, as_json=args.json)
    if args.html is not None:
        from gpumon.outlets.atomic_write import write_whole
        from gpumon.outlets.plot.fleet_html import fleet_page

        write_whole(args.html, fleet_page(report))
    return _compare_with_limit(report, args.fail_if_lost_above)


def _print(report: FleetReport, *, as_json: bool) -> None:
    from gpumon.core.codecs.fleet_codec import encode_fleet_report
    from gpumon.outlets.text.fleet_text import render_fleet_report
    from gpumon.outlets.text.style import style_for

    if as_json:
        print(json.dumps(encode_fleet_report(report), indent=2))
    else:
        print(render_fleet_report(report, style_for(sys.stdout, os.environ)), end="")
    sys.stdout.flush()


def _compare_with_limit(report: FleetReport, percent: float | None) -> int:
    from gpumon.core.wording import in_percent

    if percent is None:
        return 0
    if report.lost_ratio is None:
        raise NothingToJudgeError("no verdict: no GPU was in use")
    limit = percent / 100.0
    if report.lost_ratio <= limit:
        return 0
    lost = in_percent(report.lost_ratio, limit)
    print_error(f"more than {percent:g} % of the time in use is lost: {lost}")
    return 1
