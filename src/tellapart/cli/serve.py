"""``tellapart serve``: serves a captioner with an OpenAI-compatible API."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Count, Device, InferencePrecision, Port
from tellapart.data import open_data
from tellapart.errors import UsageError, need_extra
from tellapart.utils.messages import say

app = App()
KEY = "TELLAPART_SERVE_KEY"
CONTRASTS = 8  # number of pictures, the same as for `caption --drop-guesses`


@app.command(rich_help_panel=MEASURING)
def serve(
    model: str,
    port: Port = 8767,
    host: Annotated[str | None, typer.Option(metavar="NAME:PORT")] = None,
    beams: Count = 5,
    max_tokens: Count = 30,
    scorer: str | None = None,
    contrast: str | None = None,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
) -> None:
    """Serve a captioner through an OpenAI-compatible API; Ctrl-C stops it.

    POST /v1/chat/completions takes one picture per request, as a base64 data URL.

    Besides n, temperature and max_tokens, requests accept consensus, best_of, confidence, drop_guesses and beams. If
    $TELLAPART_SERVE_KEY is set, every request must send this key.

    Args:
        model: Captioner: folder, run, hub name, or 'scenes'.
        host: Additional host name, if a proxy or tunnel forwards requests. Requires $TELLAPART_SERVE_KEY.
        beams: Default number of beams; 1 means greedy decoding.
        max_tokens: Default maximum caption length, in tokens.
        scorer: Scorer for best_of, and for consensus with scorer_weight.
        contrast: Pictures that drop_guesses compares with. Default: plain grey, white and black pictures.
    """
    need_extra("serve", "the endpoint", "starlette", "uvicorn")
    from tellapart.captioners import load_captioner
    from tellapart.inference import endpoint, service
    from tellapart.models import decoding, devices
    from tellapart.scorers import load_scorer
    from tellapart.utils.web import origins, server

    key = os.environ.get(KEY) or None
    if host is not None and key is None:
        raise UsageError(
            f"--host {host}: the server will be reachable from other machines; set an API key first: export {KEY}=…"
        )
    listener = server.bind(port)
    place = devices.resolve_device(device)
    captioner = load_captioner(model, place, precision)
    beam: Any = {"kind": "beam", "beams": beams} if beams > 1 else {}
    others = list(open_data(contrast))[:CONTRASTS] if contrast else service.plain_pictures()
    if len(others) < 2:
        raise UsageError(f"--contrast {contrast}: expected at least two pictures, got {len(others)}")
    answering = service.Service(
        captioner,
        decoding.Decoding(max_tokens=max_tokens, **beam),
        load_scorer(scorer, place) if scorer else None,
        key,
        others,
    )
    own = listener.getsockname()[1]
    hosts = frozenset(origin.partition("://")[2] for origin in origins.own_origins(own))
    hosts |= {host} if host else frozenset()

    def ready(address: str) -> None:
        needs = "requests require the API key" if key else "no API key required"
        say(f"serving {captioner.name} at {address}v1 ({needs}; press Ctrl-C to stop)")

    server.serve(endpoint.create_app(answering, own, hosts), listener, ready)
