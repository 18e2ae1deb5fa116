"""The format and the encoding that a scraper prefers, with its qualities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.outlets.metrics.negotiation import prefers_gzip, prefers_openmetrics

OPEN = "application/openmetrics-text"
PROMETHEUS_2 = (
    f"{OPEN};version=1.0.0,{OPEN};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    f"{OPEN};version=1.0.0;escaping=allow-utf-8;q=0.6,{OPEN};version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
TEXT_FIRST = f"text/plain;version=0.0.4;q=0.6,{OPEN};version=1.0.0;q=0.5,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "is_preferred"),
    [
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        (TEXT_FIRST, False),
        (OPEN, True),
        (f"{OPEN.upper()} ; Q=1.000", True),
        (f"{OPEN};q=0.001", True),
        (f"{OPEN};q=0.5,text/plain;q=0.5", True),
        (f"{OPEN};q=0.5,text/*;q=0.6", False),
        (f"{OPEN};q=0.5,*/*;q=0.6", False),
        (f"{OPEN};q=0.5,text/plain;q=0.2,*/*;q=0.6", True),
        (f"{OPEN};q=0", False),
        (f"{OPEN};q=0.000,*/*", False),
        (f"{OPEN};q=1.1", False),
        (f"{OPEN};q=-1", False),
        (f"{OPEN};q=nan", False),
        (f"{OPEN};q=", False),
        (f"{OPEN}2", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
        (None, False),
    ],
)
def test_openmetrics_is_preferred(accept: str | None, is_preferred: bool) -> None:
    assert prefers_openmetrics(accept) is is_preferred


@pytest.mark.parametrize(
    ("accept_encoding", "is_preferred"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("deflate;q=1, GZIP ; q=0.5", True),
        ("x-gzip", True),
        ("*", True),
        ("gzip;q=0.5, identity;q=0.5", True),
        ("gzip;q=0.4, identity;q=0.5", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("identity", False),
        ("deflate, br", False),
        ("gzip;q=2", False),
        ("gzip;q=1e-3", False),
        ("gzipped", False),
        ("", False),
        (None, False),
    ],
)
def test_gzip_is_preferred(accept_encoding: str | None, is_preferred: bool) -> None:
    assert prefers_gzip(accept_encoding) is is_preferred


@given(st.text(max_size=200))
def test_any_field_has_an_answer(field: str) -> None:
    assert prefers_gzip(field) in (True, False)
    assert prefers_openmetrics(field) in (True, False)
