"""Credentials and TLS from a file in the form of Prometheus' own ``http_config``."""

from __future__ import annotations

import base64
import os
import ssl
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.wording import label_text, listed
from gpumon.errors import UsageError

OPTION: Final = "--http-config"
_MAX_BYTES: Final = 64 << 10
_MAX_CERTIFICATE_BYTES: Final = 4 << 20
"""A bundle of all public authorities has a quarter of a megabyte."""
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "basic_auth": ("username", "password", "password_file"),
    "authorization": ("type", "credentials", "credentials_file"),
    "tls_config": ("ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify"),
}
_CHALLENGES: Final = ("digest", "negotiate", "ntlm", "hoba", "mutual", "scram-sha-256")
"""Types of an authorization for which a fixed text is never right."""
_INSECURE: Final = "insecure_skip_verify"


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """How a server is asked.

    Attributes:
        path: The file that this is from; ``None``: there is none.
        authorization: The field of that name; ``None``: no credentials.
        tls: For https.
        server_name: The name that the certificate must have; ``None``: that of the address.
    """

    path: str | None = None
    authorization: str | None = None
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


def read_http_config(path: str) -> HttpAccess:
    """Read the file; relative paths in it are from its folder, as Prometheus reads them.

    Raises:
        UsageError: It cannot be read, has an unknown key, or other users could read its secrets.
    """
    reader = _Reader(path)
    sections = reader.sections()
    basic, other = sections.get("basic_auth"), sections.get("authorization")
    if basic is not None and other is not None:
        raise reader.refusal("has both basic_auth and authorization: keep one of them")
    authorization = None
    if basic is not None:
        user, password = reader.word(basic, "username"), reader.secret(basic, "password")
        if ":" in user:
            raise reader.refusal("has a username with a colon, which basic_auth cannot send")
        pair = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
        authorization = f"Basic {pair}"
    elif other is not None:
        kind = reader.word(other, "type") or "Bearer"
        if kind.lower() == "basic":
            raise reader.refusal(f"has an authorization of type {kind}: use basic_auth")
        if kind.lower() in _CHALLENGES:
            raise reader.refusal(
                f"has an authorization of type {kind}, which gpumon does not support, because it "
                "answers a question of the server"
            )
        authorization = f"{kind} {reader.secret(other, 'credentials')}"
        if not authorization.isascii():
            raise reader.refusal("has an authorization that is not ASCII")
    tls = sections.get("tls_config", {})
    return HttpAccess(
        path=path,
        authorization=authorization,
        tls=reader.tls_context(tls) if tls else None,
        server_name=reader.word(tls, "server_name") or None,
    )


class _Reader:
    """Reads one file and those that it names."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._text, self._is_public = self._read(path)

    def refusal(self, what: str) -> UsageError:
        """An error that names the file."""
        return UsageError(f"{OPTION} {self._path} {what}")

    def sections(self) -> dict[str, Mapping[str, object]]:
        """The sections with their keys, all of them known."""
        document = self._document()
        if not isinstance(document, dict) or not document:
            raise self.refusal(f"has none of {listed([*_SECTIONS])} at its top level")
        for name, section in document.items():
            if name not in _SECTIONS:
                raise self._unknown(name, [*_SECTIONS])
            if not isinstance(section, dict):
                raise self.refusal(f"has no keys below {name}")
            for key in section:
                if key not in _SECTIONS[name]:
                    raise self._unknown(f"{name}.{key}", _SECTIONS[name])
        return document

    def word(self, section: Mapping[str, object], key: str) -> str:
        """The text of a key, without line breaks; empty where there is none."""
        text = section.get(key, "")
        if not isinstance(text, str):
            raise self.refusal(f"has a {key} that is not text: put it into quotes")
        if not text.isprintable():
            raise self.refusal(f"has a {key} with a control character")
        return text

    def secret(self, section: Mapping[str, object], key: str) -> str:
        """A secret that is in the file itself, or in one that it names."""
        file_key = f"{key}_file"
        text, other = self.word(section, key), self.word(section, file_key)
        if bool(text) == bool(other):
            raise self.refusal(f"needs one of {key} and {file_key}")
        if text:
            if self._is_public:
                raise self.refusal("has a secret and can be read by all users: chmod 600 it")
            return text
        body, is_public = self._read(self._beside(other))
        if is_public:
            raise self.refusal(f"names {other}, which can be read by all users: chmod 600 it")
        if not body.strip().isprintable():
            raise self.refusal(f"names {other}, which has no {key} in one line")
        return body.strip()

    def tls_context(self, section: Mapping[str, object]) -> ssl.SSLContext:
        """A context that verifies the server, unless the file says not to."""
        ca, certificate, key = (
            self._beside(text) if (text := self.word(section, name)) else None
            for name in ("ca_file", "cert_file", "key_file")
        )
        if (certificate is None) != (key is None):
            raise self.refusal("needs both of cert_file and key_file, or none")
        is_insecure = section.get(_INSECURE, False)
        if not isinstance(is_insecure, bool):
            raise self.refusal(f"has an {_INSECURE} that is neither true nor false")
        for path in filter(None, (ca, certificate, key)):
            if self._read_bytes(path, _MAX_CERTIFICATE_BYTES)[1] and path == key:
                raise self.refusal(f"names {key}, which can be read by all users: chmod 600 it")
        try:
            context = ssl.create_default_context(cafile=ca)
        except (OSError, ValueError) as error:
            raise self.refusal(f"names {ca}, which has no certificate: {_reason(error)}") from error
        try:
            if certificate is not None:
                # A pass phrase would be asked for at the terminal.
                context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            raise self.refusal(
                f"names {certificate} and {key}, which cannot be used: {_reason(error)}"
            ) from error
        if is_insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _beside(self, path: str) -> str:
        return str(Path(self._path).parent / path)

    def _read(self, path: str) -> tuple[str, bool]:
        """The text of a file, and whether all users can read it."""
        body, is_public = self._read_bytes(path, _MAX_BYTES)
        try:
            return body.decode("utf-8"), is_public
        except ValueError as error:
            raise self._unreadable(path, error) from error

    def _read_bytes(self, path: str, most: int) -> tuple[bytes, bool]:
        """The bytes of a file, and whether all users can read it."""
        try:
            # A FIFO would be waited for.
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                body = file.read(most + 1) or b""
            if len(body) > most:
                raise ValueError(f"it is longer than {most >> 10} KiB")
            return body, bool(mode & stat.S_IROTH)
        except (OSError, ValueError) as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: str, error: Exception) -> UsageError:
        named = "" if path == self._path else f" names {path}, which cannot be read"
        return UsageError(f"{OPTION} {self._path}{named}: {_reason(error)}")

    def _document(self) -> object:
        try:
            import yaml  # an extra
        except ImportError as error:
            raise UsageError(
                f"{OPTION} needs PyYAML: install it with "
                f"`{sys.executable} -m pip install 'pyyaml>=6'`"
            ) from error
        try:
            return yaml.safe_load(self._text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f" at line {mark.line + 1}" if mark is not None else ""
            # The message of a parser may quote a secret.
            raise self.refusal(f"is not YAML{where}") from None

    def _unknown(self, key: object, known: tuple[str, ...] | list[str]) -> UsageError:
        name = label_text(key, 60)
        return self.refusal(
            f"has {name}, which gpumon does not support; it knows {listed(known, 9)}"
        )


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
