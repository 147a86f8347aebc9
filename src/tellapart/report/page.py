"""Renders run folders as one self-contained HTML page. It can be read without a network, other files or scripts."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tellapart.errors import UsageError
from tellapart.metrics.results import Results
from tellapart.report.album import Album
from tellapart.report.curves import CURVE, charts
from tellapart.report.folder import RunFolder, read_run
from tellapart.report.gallery_view import view_gallery
from tellapart.report.headline import headline
from tellapart.report.number_text import format_number
from tellapart.report.overview import overview, unique_names
from tellapart.report.recipe_summary import recipe_summary
from tellapart.report.system_comparison import comparisons
from tellapart.report.table import results_table
from tellapart.report.template import HERE, template
from tellapart.report.trade_off import trade_off
from tellapart.utils.outputs import check_output, write_output

KEPT_START = "Validation selected step 0, so the saved model has the initial weights."


def build_report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Writes one HTML page about ``runs`` (run folders) and returns its path.

    ``out`` defaults to ``report.html`` in the run folder, or in the current folder if there are several runs. The file
    is replaced atomically, so that readers never see a partial page. Raises `UsageError` if a path is not a run folder,
    and `TellapartError` if the page cannot be written.
    """
    if not runs:
        raise UsageError("no run specified; use tellapart report RUN")
    folders = [read_run(Path(path)) for path in runs]
    default = (folders[0].path if len(folders) == 1 else Path()) / "report.html"
    own = len(folders) == 1 and not out
    out = Path(out) if out else default
    if not own:
        check_output(out, ".html", ".htm")
    words = [*map(str, runs), *(["-o", str(out)] if out.resolve() != default.resolve() else [])]
    page = render(folders, shlex.join(["tellapart", "report", *words]))
    write_output(out, page, own=own, errors="replace")
    return out


def render(folders: Sequence[RunFolder], command: str) -> str:
    """Renders the page. ``command``: the command that reproduces it, which the page shows."""
    album, names = Album(), unique_names(folders)
    views = [_view(folder, name, album) for folder, name in zip(folders, names, strict=True)]
    title, columns = overview(folders, names) if len(folders) > 1 else (views[0]["headline"], None)
    script = (HERE / "page.js").read_text(encoding="utf-8")
    return template(HERE / "page.html").render(
        views=views,
        title=title,
        columns=columns,
        trade=trade_off(folders, names),
        sprites=album.sprites(),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        curve=CURVE,
        number=format_number,
        command=command,
    )


def _view(run: RunFolder, name: str, album: Album) -> dict[str, Any]:
    """Returns everything that the template shows for one run.

    ``tests`` maps the name of each additional test set to its table and the notes below the table.
    """
    results = run.results or Results([])
    gallery = run.gallery and view_gallery(run.gallery, run.results, run.path, album, run.gaps)
    main, more = charts(run.log)
    sentence, statistics = (KEPT_START, "") if run.info.kept_step == 0 else headline(results)
    tests = {name: (results_table(found), found.notes) for name, found in results.test_sets.items()}
    return {
        "name": name,
        "run": run,
        "headline": sentence,
        "statistics": statistics,
        "command": run.info.command if isinstance(run.info.command, str) else shlex.join(run.info.command),
        "facts": _facts(run),
        "summary": recipe_summary(run),
        "comparisons": [one for one in comparisons(results) if one.changes],
        "table": results_table(results),
        "tests": {name: shown for name, shown in tests.items() if shown[0] is not None},
        "charts": main,
        "more_charts": more,
        "gallery": gallery,
    }


def _facts(run: RunFolder) -> dict[str, str]:
    """Returns facts about a run, by label."""
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items() if version)
    facts = {
        "Systems" if run.evaluation else "Run": run.name,
        "Started": moment(info.created),
        "Took": duration(info.seconds) if info.seconds is not None else "",
        "Finished": "" if run.evaluation or info.seconds is not None else moment(info.finished or "not yet"),
        "Device": (info.device or "") + (f", {info.threads} threads" if info.device and info.threads else ""),
        "Seed": "" if info.seed is None else str(info.seed),
        "Versions": versions,
        "Commit": info.commit or "",
        "Folder": "" if run.evaluation else str(run.path.resolve()),
    }
    return {label: text for label, text in facts.items() if text}


def moment(text: str) -> str:
    """Formats an ISO time for readers. Returns any other text unchanged."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when.day} {when:%B %Y, %H:%M}{' UTC' if when.utcoffset() is not None and not when.utcoffset() else ''}"


def duration(seconds: float) -> str:
    """Formats a duration in seconds with its two largest units, e.g. ``3 min 12 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
