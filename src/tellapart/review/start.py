"""Opens a review from the names that a user typed, and serves it."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path

from tellapart.captions.store import CaptionStore
from tellapart.data import open_many
from tellapart.review.app import serve
from tellapart.review.session import ReviewSession
from tellapart.utils.messages import say
from tellapart.utils.web import bind


def open_session(
    folder: str, captions: Path | None = None, scorer: str | None = None, model: str | None = None, device: str = "auto"
) -> ReviewSession:
    """Returns the review of a folder; captions follow pictures that were renamed. Raises `UsageError`."""
    dataset = open_many([folder])
    store = CaptionStore.open(dataset, captions, Path(folder))
    for line in dataset.report():
        say(line)
    if moved := store.follow():
        say(f"{len(moved):,} captions follow their pictures, which were renamed or moved")
    finder = recaptioner = None
    if scorer is not None:
        from tellapart.review.models import open_models  # torch: most reviews do without

        finder, recaptioner = open_models(scorer, model, device, dataset)
    return ReviewSession(store, folder, finder, recaptioner)


def serve_review(session: ReviewSession, port: int, open_page: bool) -> None:
    """Serves the page until Ctrl-C; ``open_page``: opens it in this machine's browser.

    Meanwhile writes down which picture each text is of, so that it follows the picture when that is renamed.
    """
    listener = bind(port)
    threading.Thread(target=session.store.remember, daemon=True).start()

    def ready(address: str) -> None:
        store = session.store
        say(f"{len(store.items):,} pictures, captions in {store.layout.name}; review them at {address} (Ctrl-C ends "
            "it)")  # fmt: skip
        if open_page:
            webbrowser.open(address)

    serve(session, listener, ready)
