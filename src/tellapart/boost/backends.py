"""Backends: an OpenAI-compatible server, a local model, or the scripted backend that ships with the package.

openai:MODEL@http://127.0.0.1:8000/v1       vLLM, llama.cpp, Ollama, ``transformers serve``, hosted servers
openai:MODEL@URL?key=MY_KEY&timeout=60      with settings; see `tellapart.boost.server_model.SETTINGS`
local:FOLDER                                a transformers chat model on this machine (`Local`)
scripted:error=0.2                          blends and describes `scenes` using a grammar (`tellapart.boost.scripted`)
"""

from __future__ import annotations

from tellapart.boost.local import Local
from tellapart.boost.openai_server import OpenAI
from tellapart.boost.scripted import Scripted
from tellapart.boost.spec_settings import number_setting, spec_settings
from tellapart.boost.types import Backend
from tellapart.errors import UsageError, nearest


def open_backend(spec: str, device: str = "auto", precision: str = "auto") -> Backend:
    """Opens the backend that a specification describes. See the module's docstring for the syntax.

    ``device`` and ``precision`` apply to local models. See `tellapart.models.devices` and `tellapart.models.precision`.
    """
    kind, _, rest = spec.partition(":")
    if kind == "openai":
        return OpenAI.open(spec)
    if kind == "local":
        return Local.open(rest, device, precision)
    if kind == "scripted":
        _, settings = spec_settings(f"?{rest}" if rest else "", spec, ("error", "seed"))
        return Scripted(number_setting(settings, "error", 0.0), int(number_setting(settings, "seed", 0.0)))
    raise UsageError(f"unknown backend '{kind}'{nearest(kind, BACKENDS)}; use one such as {BACKEND_EXAMPLE}")


BACKENDS = ("openai", "local", "scripted")
BACKEND_EXAMPLE = "openai:MODEL@http://127.0.0.1:8000/v1, local:FOLDER or scripted"
