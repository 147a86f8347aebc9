"""Parses specifications of server models and their settings, such as ``openai:MODEL@URL?key=VARIABLE&timeout=60``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tellapart.boost.spec_settings import number_setting, spec_settings
from tellapart.errors import UsageError

KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
SAMPLING = ("temperature", "top_p")
SETTINGS = ("key", "timeout", "limit", "in", "out", *SAMPLING)
TIMEOUT = 120.0  # seconds


@dataclass(frozen=True, slots=True)
class ServerModel:
    """A model on a server.

    name: does not contain the address, so that a model's answers stay valid when it moves to another server.
    sampling: default sampling settings for requests, which are part of the name.
    prices: prices per million input tokens and output tokens, or None if they are unknown.
    timeout: maximum number of seconds for one complete answer.
    limit: name of the request field that limits the length of an answer.
    """

    name: str
    model: str
    address: str
    key: str = field(repr=False)
    sampling: dict[str, float]
    prices: tuple[float, float] | None
    timeout: float
    limit: str

    @classmethod
    def parse(
        cls,
        spec: str,
        *,
        url: str = "",
        key_variable: str = KEY_VARIABLE,
        limit: str = "max_tokens",
        price_factor: float = 1.0,
    ) -> ServerModel:
        """Parses a specification. ``url``, ``key_variable`` and ``limit`` are the defaults for settings that are not
        specified. Prices are multiplied by ``price_factor``. Raises `UsageError` for an invalid specification.
        """
        kind, _, rest = spec.partition(":")
        body, settings = spec_settings(rest, spec, SETTINGS)
        model, at, address = body.rpartition("@http")
        model, address = (model, f"http{address}") if at else (body, url)
        if not model:
            raise UsageError(f"{kind}: missing model; use {kind}:MODEL@http://127.0.0.1:8000/v1")
        sampling = {key: number_setting(settings, key, 0.0) for key in SAMPLING if key in settings}
        written = "&".join(f"{key}={value:g}" for key, value in sampling.items())
        name = f"{kind}:{model}" + (f"?{written}" if written else "")
        price_in, price_out = (price_factor * number_setting(settings, key, 0.0) for key in ("in", "out"))
        return cls(
            name,
            model,
            _checked_address(address, name),
            _api_key(settings.get("key"), key_variable, name),
            sampling,
            (price_in, price_out) if settings.keys() & {"in", "out"} else None,
            number_setting(settings, "timeout", TIMEOUT) or TIMEOUT,
            settings.get("limit", limit),
        )

    @property
    def on_this_machine(self) -> bool:
        """Whether the server runs on this machine, so that proxies from the environment do not apply."""
        return urlsplit(self.address).hostname in ("localhost", "127.0.0.1", "::1")


def _checked_address(url: str, name: str) -> str:
    """Validates an address and returns it without a trailing slash. Raises `UsageError`, e.g. if the address contains
    credentials.
    """
    if not url:
        raise UsageError(f"{name}: missing server; use {name}@http://127.0.0.1:8000/v1, or set {URL_VARIABLE}")
    try:
        parts = urlsplit(url)
        valid = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        parts, valid = urlsplit(""), False
    if parts.username or parts.password or "?" in url or "#" in url:
        raise UsageError(
            f"{name}: the server's URL must not contain a user, password or '?'; API keys are read from {KEY_VARIABLE}"
        )
    if not valid:
        raise UsageError(f"{name}: '{url}' is not a server URL; expected one such as http://127.0.0.1:8000/v1")
    return url.rstrip("/").removesuffix("/chat/completions")


def _api_key(variable: str | None, default: str, name: str) -> str:
    """Reads the API key from an environment variable. Returns "" if only ``default`` is given and it is not set,
    because local servers need no key.
    """
    key = os.environ.get(variable or default, "").strip()
    if variable and not key:
        raise UsageError(
            f"{name}: the environment variable {variable} is not set; run: export {variable}=…, or remove key="
        )
    if not key.isascii() or any(c.isspace() or not c.isprintable() for c in key):
        raise UsageError(
            f"{name}: {variable or default} does not contain a valid key (spaces or unprintable characters)"
        )
    return key
