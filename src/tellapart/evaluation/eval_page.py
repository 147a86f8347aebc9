"""``tellapart eval --report``: writes a page about any caption files, using the code of the run report."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tellapart import __version__
from tellapart.evaluation.gallery import caption_gallery, gallery, save_pictures
from tellapart.metrics.results import Results
from tellapart.report.folder import RunFolder, RunInfo
from tellapart.report.gallery import Gallery
from tellapart.report.page import render
from tellapart.types import Item
from tellapart.utils.outputs import write_output


def write_eval_page(results: Results, out: Path, command: str, items: Sequence[Item] | None = None) -> None:
    """Writes an HTML page to ``out`` that shows the changes, the scores and, if ``items`` are given, a gallery.

    The gallery shows look-alike sets if a scorer mined them, otherwise single pictures with every system's caption.
    ``command``: the command that reproduces the page. Raises `TellapartError` if the page cannot be written.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    info = RunInfo(name=", ".join(results.captions), created=now, command=command, versions={"tellapart": __version__})
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch), info, results=Results.from_json(results.to_json()), evaluation=True)
        if items is not None:
            sets = gallery(results, items)
            sets = sets if sets["sets"] else caption_gallery(results, items)
            folder.gallery = Gallery.model_validate({**sets, "pictures": save_pictures(folder.path, sets, items)})
        page = render([folder], command)
    write_output(out, page)
