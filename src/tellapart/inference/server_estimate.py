"""Estimates the number of requests to a server, and their cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.boost.batches import BatchBackend
from tellapart.boost.cost_estimate import estimate_line
from tellapart.data import Dataset
from tellapart.inference.prompts import Prompts
from tellapart.inference.server_backend import open_server
from tellapart.inference.server_captions import ServerCaptions
from tellapart.types import Item


def estimate_by_server(name: str, dataset: Dataset, prompts: Prompts | None, **settings: Any) -> str:
    """Returns the expected and maximum number of requests for all pictures, with their cost. Does not send any
    requests.

    ``settings``: arguments of `ServerCaptions`.
    """
    backend, prompt = open_server(name)
    captions = ServerCaptions(backend, prompt, prompts=prompts, **settings)
    half = ", at the batch price (half)" if isinstance(backend, BatchBackend) and backend.prices else ""
    return announcement(captions, list(dataset), Path()) + half


def announcement(captions: ServerCaptions, todo: list[Item], ledger: Path) -> str:
    """Returns the number of requests and their estimated cost."""
    backend = captions.backend
    few, one_each, most = captions.load(todo)
    several = few.requests != one_each.requests
    note = f" ({one_each.requests:,} if the server returns only one choice per request)" if several else ""
    line = f"{backend.name}: {estimate_line(few, most, backend, note)}"
    return f"{line}; answers in {ledger} are not requested again" if ledger.is_file() else line
