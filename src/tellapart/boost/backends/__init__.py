"""Backends: a server, a local model, or the scripted backend that ships with the package.

openai:MODEL@http://127.0.0.1:8000/v1       any OpenAI-compatible server: vLLM, llama.cpp, Ollama, a hosted one
openai:MODEL@URL?key=MY_KEY&timeout=60      with settings; see `openai.KEYS`
local:FOLDER                                a model of transformers on this machine
scripted:error=0.2                          blends and describes `scenes` by their grammar
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from tellapart.boost.backends.settings import number
from tellapart.boost.types import Backend
from tellapart.errors import UsageError, nearest


def open_backend(spec: str, device: str = "auto", precision: str = "auto") -> Backend:
    """The backend of a specification (the module's docstring has the grammar). Raises `UsageError`.

    ``device`` and ``precision``: of a local model, see `tellapart.models.device`.
    """
    kind, _, rest = spec.partition(":")
    if kind not in (*BACKENDS, "local"):
        raise UsageError(
            f"no backend is called '{kind}'{nearest(kind, (*BACKENDS, 'local'))}; type one such as {EXAMPLE}"
        )
    return _local(rest, device, precision) if kind == "local" else BACKENDS[kind](rest)


def _openai(rest: str) -> Backend:
    from tellapart.boost.backends.openai import KEYS, OpenAI

    body, settings = _settings(rest, f"openai:{rest}", KEYS)
    model, at, url = body.rpartition("@http")
    return OpenAI(model if at else body, f"http{url}" if at else None, settings)


def _local(rest: str, device: str, precision: str) -> Backend:
    from tellapart.boost.backends.local import Local

    return Local.open(rest, device, precision)


def _scripted(rest: str) -> Backend:
    from tellapart.boost.scripted import Scripted

    _, settings = _settings(f"?{rest}" if rest else "", f"scripted:{rest}", ("error", "seed"))
    return Scripted(error=number(settings, "error", 0.0), seed=int(number(settings, "seed", 0.0)))


BACKENDS: dict[str, Callable[[str], Backend]] = {"openai": _openai, "scripted": _scripted}
EXAMPLE = "openai:MODEL@http://127.0.0.1:8000/v1, local:FOLDER or scripted"


def _settings(text: str, spec: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """What stands before the ``?``, and the pairs behind it."""
    body, _, query = text.partition("?")
    values = {}
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if key not in known:
            raise UsageError(f"'{spec.partition('@')[0]}' has no setting '{key}'{nearest(key, known)}")
        if not equals or not value:
            raise UsageError(f"{spec.partition('@')[0]}: '{pair}' is not key=value")
        values[key] = unquote(value)
    return body, values
