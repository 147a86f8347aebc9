"""``tellapart eval --report``: the page of any caption files, with the machinery of a run's report."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tellapart import __version__
from tellapart.evaluation import gallery
from tellapart.metrics.results import Results
from tellapart.report.folder import Gallery, RunFolder, RunInfo, TrainingLog
from tellapart.report.page import render
from tellapart.types import Item
from tellapart.utils.files import write_output


def write_eval_page(results: Results, out: Path, command: str, items: Sequence[Item] | None = None) -> None:
    """One HTML page at ``out``: what changed, the numbers, and where there are pictures (``items``) a gallery.

    Look-alike sets where a scorer made them, else pictures with every system's caption. ``command`` is what makes the
    page again. Raises `TellapartError` where the page cannot be written.
    """

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = None
        if items is not None:
            sets = gallery.gallery(results, items)
            sets = sets if sets["sets"] else gallery.caption_gallery(results, items)
            found = Gallery.model_validate({**sets, "pictures": gallery.save_pictures(folder, sets, items)})
        info = RunInfo(
            name=", ".join(results.captions),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            versions={"tellapart": __version__},
        )
        shown = Results.from_json(results.to_json())
        page = render([RunFolder(folder, info, TrainingLog(), results=shown, gallery=found, evaluation=True)], command)
    write_output(out, page)
