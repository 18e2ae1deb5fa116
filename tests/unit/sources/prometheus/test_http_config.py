"""Tests of credentials and TLS in a file in the form of Prometheus' http_config."""

from __future__ import annotations

import base64
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.errors import UsageError
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.http_config import read_http_config
from tests import fake_prometheus
from tests.fake_prometheus import FakePrometheus
from tests.needs import missing

BASIC = "basic_auth: {username: ann, password: 'open: sesame'}"


@pytest.fixture(autouse=True)
def _yaml() -> None:
    if importlib.util.find_spec("yaml") is None:
        missing("PyYAML is not installed")


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with fake_prometheus.running(FakePrometheus()) as fake:
        yield fake


def written(folder: Path, text: str, *, name: str = "prom.yml", mode: int = 0o600) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def authorization(folder: Path, text: str) -> str | None:
    return read_http_config(written(folder, text)).authorization


def refusal(folder: Path, text: str, *, mode: int = 0o600) -> str:
    with pytest.raises(UsageError) as caught:
        read_http_config(written(folder, text, mode=mode))
    assert "sesame" not in str(caught.value)
    return str(caught.value)


class TestCredentials:
    def test_of_a_user_are_sent(self, fake: FakePrometheus, tmp_path: Path) -> None:
        api = PrometheusApi(fake.address, read_http_config(written(tmp_path, BASIC)))
        api.ask("vector(1)")

        kind, _, encoded = fake.heads[0]["Authorization"].partition(" ")
        assert (kind, base64.b64decode(encoded)) == ("Basic", b"ann:open: sesame")

    @pytest.mark.parametrize(
        ("text", "sent"),
        [
            ("authorization: {credentials: sesame}", "Bearer sesame"),
            ("authorization: {type: Token, credentials: sesame}", "Token sesame"),
            ("authorization:\n  credentials_file: token\n", "Bearer of-a-file"),
            ("tls_config: {insecure_skip_verify: true}", None),
        ],
    )
    def test_are_a_token(self, tmp_path: Path, text: str, sent: str | None) -> None:
        written(tmp_path, "of-a-file\n", name="token")

        assert authorization(tmp_path, text) == sent

    def test_may_be_in_a_file_beside_it(self, tmp_path: Path) -> None:
        written(tmp_path, "sesame\n", name="pw")
        text = "basic_auth: {username: ann, password_file: pw}"

        assert authorization(tmp_path, text) == f"Basic {base64.b64encode(b'ann:sesame').decode()}"

    def test_that_all_users_can_read_are_refused(self, tmp_path: Path) -> None:
        assert refusal(tmp_path, BASIC, mode=0o644).endswith("chmod 600 it")
        written(tmp_path, "sesame", name="pw", mode=0o644)
        text = "basic_auth: {username: ann, password_file: pw}"
        assert "names pw, which can be read by all users" in refusal(tmp_path, text, mode=0o644)

    def test_without_a_secret_may_be_public(self, tmp_path: Path) -> None:
        written(tmp_path, "sesame", name="pw")
        text = "basic_auth: {username: ann, password_file: pw}"

        assert read_http_config(written(tmp_path, text, mode=0o644)).authorization is not None


class TestAFile:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "has none of basic_auth, authorization and tls_config at its"),
            ("- 7", "has none of basic_auth, authorization and tls_config at its"),
            ("proxy_url: http://proxy", "has proxy_url, which gpumon does not support"),
            ("oauth2: {}", "has oauth2, which gpumon does not support"),
            ("basic_auth: sesame", "has no keys below basic_auth"),
            ("basic_auth: {user: ann}", "has basic_auth.user, which gpumon does not support"),
            (f"{BASIC}\nauthorization: {{credentials: sesame}}", "has both basic_auth and"),
            ("basic_auth: {username: ann}", "needs one of password and password_file"),
            ("authorization: {credentials: a, credentials_file: b}", "needs one of credentials"),
            ("authorization: {credentials: 7}", "has a credentials that is not text"),
            ('authorization: {credentials: "sesame\\r\\nX: y"}', "with a control character"),
            ("authorization: {credentials: sésame}", "is not ASCII"),
            ("basic_auth: {username: 'a:b', password: sesame}", "has a username with a colon"),
            ("authorization: {credentials_file: gone}", "gone, which cannot be read: No such"),
            ("tls_config: {ca_file: gone}", "/gone, which cannot be read: No such file"),
            ("tls_config: {ca_file: prom.yml}", "prom.yml, which has no certificate: "),
            ("authorization: {type: Digest, credentials: a}", "type Digest, which gpumon does not"),
            ("authorization: {type: basic, credentials: a}", "type basic: use basic_auth"),
            ("tls_config: {cert_file: a}", "needs both of cert_file and key_file"),
            ("tls_config: {insecure_skip_verify: 1}", "neither true nor false"),
            ("basic_auth: {password: sesame", "is not YAML at line 1"),
            ("!!python/object/apply:os.system [sesame]", "is not YAML at line 1"),
            ("x" * 70_000, "it is longer than 64 KiB"),
        ],
        ids=lambda text: text[:40],
    )
    def test_is_refused(self, tmp_path: Path, text: str, reason: str) -> None:
        assert reason in refusal(tmp_path, text)

    def test_that_is_missing_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="No such file"):
            read_http_config(str(tmp_path / "gone"))
        with pytest.raises(UsageError, match="Is a directory"):
            read_http_config(str(tmp_path))

    def test_needs_pyyaml(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)

        assert "needs PyYAML: install it with" in refusal(tmp_path, BASIC)
