"""A real issuer of tokens on loopback: real keys, its discovery document and its key set over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from tidegate.gateway.auth.oidc import _Signatures
from tidegate.gateway.settings import ALGORITHMS, OidcSettings

AUDIENCE = "tidegate"


class TestIssuer:
    """Signs tokens, and publishes its keys."""

    __test__ = False

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self.asked: list[str] = []
        """The paths of all requests."""
        self.is_down = False
        self.answers: dict[str, bytes] = {}
        """What is said at a path, in the place of what is true."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.add("first", ECKey.generate_key("P-256", {"kid": "first"}))

    def add(self, kid: str, key: Key) -> None:
        self.keys[kid] = key

    def settings(self, **more: Any) -> OidcSettings:
        return OidcSettings(self.url, AUDIENCE, **more)

    def token(self, kid: str = "first", alg: str = "ES256", header: Any = None, **claims: Any) -> str:
        """Return a valid token with some claims replaced."""
        now = int(time.time())
        said = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300, "roles": ["consumer"]}
        said = {name: value for name, value in (said | claims).items() if value is not None}
        registry: JWSRegistry = _Signatures(algorithms=ALGORITHMS, strict_check_header=False)
        return jwt.encode({"alg": alg, "kid": kid, **(header or {})}, said, self.keys[kid], registry=registry)

    @contextmanager
    def running(self) -> Iterator[TestIssuer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _said(self, path: str) -> bytes | None:
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return json.dumps(KeySet(list(self.keys.values())).as_dict()).encode() if path == "/keys" else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                said = None if issuer.is_down else issuer._said(self.path)
                self.send_response(503 if issuer.is_down else 404 if said is None else 200)
                self.send_header("content-length", str(len(said or b"")))
                self.end_headers()
                self.wfile.write(said or b"")

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def key_of(alg: str) -> Key:
    """A new key for an algorithm."""
    kid: Any = {"kid": alg, "alg": alg}
    if alg.startswith(("RS", "PS")):
        return RSAKey.generate_key(2048, kid)
    if alg.startswith("ES"):
        return ECKey.generate_key({"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[alg], kid)
    return OKPKey.generate_key("Ed448" if alg == "Ed448" else "Ed25519", kid)
