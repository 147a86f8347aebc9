"""States the number of requests to a server, and their cost."""

from __future__ import annotations

from pathlib import Path

from tellapart.boost.cost_estimate import estimate_line
from tellapart.inference.server_captions import ServerCaptions
from tellapart.types import Item


def announcement(captions: ServerCaptions, todo: list[Item], ledger: Path) -> str:
    """Returns the number of requests and their estimated cost."""
    backend = captions.backend
    few, one_each, most = captions.load(todo)
    several = few.requests != one_each.requests
    note = f" ({one_each.requests:,} if the server returns only one choice per request)" if several else ""
    line = f"{backend.name}: {estimate_line(few, most, backend, note)}"
    return f"{line}; answers in {ledger} are not requested again" if ledger.is_file() else line
