"""A request is parsed strictly, so that it has one meaning."""

from __future__ import annotations

import pytest

from gpumon.outlets.http.request import Refused, Request, end_of_head, read_head


def read(*lines: str) -> Request | Refused:
    return read_head("\r\n".join([*lines, "", ""]).encode("latin-1"))


def refusal(*lines: str) -> int:
    found = read(*lines)
    assert isinstance(found, Refused), found
    assert found.text.endswith(".")
    return found.status


class TestAHead:
    def test_is_a_method_a_path_a_query_and_fields(self) -> None:
        found = read("GET /a/b?c=d?e HTTP/1.1", "Host: localhost:1", "aCCept:\t x \t")

        fields = {"host": "localhost:1", "accept": "x"}
        assert found == Request("GET", "/a/b", "c=d?e", "localhost:1", fields, True)

    @pytest.mark.parametrize("ending", [b"\r\n\r\n", b"\n\n", b"\r\n\n", b"\n\r\n"])
    def test_ends_with_an_empty_line_wherever_it_is_cut(self, ending: bytes) -> None:
        whole = b"GET / HTTP/1.1\r\nHost: a" + ending
        for cut in range(len(whole)):
            assert end_of_head(whole[:cut]) is None
            assert end_of_head(whole + b"rest", cut) == len(whole)
        assert isinstance(read_head(whole), Request)

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "GET",
            "GET /",
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 ",
            " GET / HTTP/1.1",
            "GET / HTTP/11",
            "GET / http/1.1",
            "GET /\xe9 HTTP/1.1",
            "GET /\0 HTTP/1.1",
            "GET /\r HTTP/1.1",
            "GET /a b HTTP/1.1",
            "G(T / HTTP/1.1",
            "GET metrics HTTP/1.1",
            "GET \\metrics HTTP/1.1",
            "GET * HTTP/1.1",
            "GET example:80 HTTP/1.1",
            "GET https://localhost/ HTTP/1.1",
            "GET ftp://localhost/ HTTP/1.1",
            "GET http:///metrics HTTP/1.1",
            "GET http://user@localhost/metrics HTTP/1.1",
            "GET http://local host/metrics HTTP/1.1",
        ],
    )
    def test_with_a_doubtful_first_line_is_refused(self, line: str) -> None:
        assert refusal(line, "Host: localhost") == 400

    @pytest.mark.parametrize("version", ["0.9", "2.0", "3.0", "9.9"])
    def test_of_another_version_is_refused(self, version: str) -> None:
        assert refusal(f"GET / HTTP/{version}") == 505

    @pytest.mark.parametrize(
        "field",
        ["Host", "Host : localhost", " Host: localhost", ": x", "A: \0", "A: a\rb", "Ho st: a",
         "Host: a/b", "Host: a b", "Host: \xff", "Host: user@localhost", "Host: [::1", "Host: a:b",
         "Host: localhost:123456"],
    )  # fmt: skip
    def test_with_a_doubtful_field_is_refused(self, field: str) -> None:
        assert refusal("GET / HTTP/1.1", field) == 400

    @pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Length"])
    def test_with_what_may_be_given_once_given_twice_is_refused(self, name: str) -> None:
        assert refusal("GET / HTTP/1.1", f"{name}: 1", f"{name.lower()}: 1") == 400

    def test_with_too_many_fields_is_refused(self) -> None:
        assert refusal("GET / HTTP/1.1", *["A: b"] * 101) == 431
        assert isinstance(read("GET / HTTP/1.1", *["A: b"] * 100), Request)


class TestAnAbsoluteTarget:
    @pytest.mark.parametrize(
        ("target", "path", "query"),
        [
            ("http://127.0.0.1:19835/metrics", "/metrics", ""),
            ("HTTP://127.0.0.1:19835/a?b", "/a", "b"),
            ("http://127.0.0.1:19835", "/", ""),
            ("http://127.0.0.1:19835?b", "/", "b"),
        ],
    )
    def test_names_the_host_and_the_field_says_nothing(
        self, target: str, path: str, query: str
    ) -> None:
        found = read(f"GET {target} HTTP/1.1", "Host: evil.example")

        assert isinstance(found, Request)
        assert (found.path, found.query, found.host) == (path, query, "127.0.0.1:19835")

    def test_does_not_excuse_a_host_field_that_is_none(self) -> None:
        assert refusal("GET http://localhost/ HTTP/1.1", "Host: a/b") == 400


@pytest.mark.parametrize(
    ("lines", "is_kept"),
    [
        (["GET / HTTP/1.1"], True),
        (["GET / HTTP/1.1", "Connection: keep-alive"], True),
        (["GET / HTTP/1.1", "Content-Length: 0"], True),
        (["GET / HTTP/1.0"], False),
        (["GET / HTTP/1.0", "Connection: keep-alive"], False),
        (["GET / HTTP/1.1", "Connection: close"], False),
        (["GET / HTTP/1.1", "Connection: Upgrade", "Connection: CLOSE"], False),
        (["GET / HTTP/1.1", "Content-Length: 1"], False),
        (["GET / HTTP/1.1", "Content-Length: 00"], False),
        (["GET / HTTP/1.1", "Transfer-Encoding: chunked"], False),
    ],
)
def test_a_connection_is_kept_for_a_client_that_keeps_it_and_sends_no_body(
    lines: list[str], is_kept: bool
) -> None:
    found = read(*lines)

    assert isinstance(found, Request)
    assert found.keeps_connection is is_kept
