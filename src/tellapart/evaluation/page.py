"""``tellapart eval --report``: the page of any caption files, with the machinery of a run's report."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart import __version__
from tellapart.evaluation.formats import write
from tellapart.evaluation.gallery import caption_gallery, gallery, save_pictures
from tellapart.report.folder import Gallery, Log, RunFolder, RunInfo
from tellapart.report.folder import Results as Shown
from tellapart.report.page import render

if TYPE_CHECKING:
    from tellapart.metrics.results import Results
    from tellapart.types import Item


def write_eval_page(results: Results, out: Path, command: str, items: Sequence[Item] | None = None) -> None:
    """One HTML page at ``out``: what changed, the numbers, and where there are pictures (``items``) a gallery.

    Look-alike sets where a scorer made them, else pictures with every system's caption. ``command`` is what makes the
    page again. Raises `TellapartError` where the page cannot be written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = None
        if items is not None:
            sets = gallery(results, items)
            sets = sets if sets["sets"] else caption_gallery(results, items)
            found = Gallery.model_validate({**sets, "pictures": save_pictures(folder, sets, items)})
        info = RunInfo(
            name=", ".join(results.captions),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            versions={"tellapart": __version__},
        )
        shown = Shown.model_validate(results.to_json())
        page = render([RunFolder(folder, info, Log(), results=shown, gallery=found, evaluation=True)], command)
    write(out, page)
