"""Opens a review from command-line arguments, and serves it."""

from __future__ import annotations

import threading
from pathlib import Path

from tellapart.captions.store import CaptionStore
from tellapart.data import open_many
from tellapart.review.app import serve_page
from tellapart.review.requests import captions_page
from tellapart.review.session import ReviewSession
from tellapart.utils.messages import say


def open_session(
    folder: str, captions: Path | None = None, scorer: str | None = None, model: str | None = None, device: str = "auto"
) -> ReviewSession:
    """Opens a review of a folder, after moving captions along with renamed pictures. Raises `UsageError`."""
    dataset = open_many([folder])
    store = CaptionStore.open(dataset, captions, Path(folder))
    for line in dataset.report():
        say(line)
    if moved := store.follow():
        say(f"moved {len(moved):,} captions with their renamed or moved pictures")
    if scorer is None:
        return ReviewSession(store, folder)
    from tellapart.review import fit_finder, recaptioner  # import torch, which most reviews do not need

    finder = fit_finder.FitFinder.open(scorer, device, dataset)
    writer = None if model is None else recaptioner.Recaptioner.open(model, device, finder, dataset)
    return ReviewSession(store, folder, finder, writer)


def serve_review(session: ReviewSession, port: int, open_page: bool) -> None:
    """Serves the page until Ctrl-C. ``open_page``: whether to also open it in this machine's browser.

    In the background, records the picture that each text describes, so that texts can follow renamed pictures.
    """
    store = session.store
    threading.Thread(target=store.remember, daemon=True).start()
    what = f"{len(store.items):,} pictures with captions in {store.layout.name}"
    serve_page(captions_page(session), port, what, open_page=open_page)
