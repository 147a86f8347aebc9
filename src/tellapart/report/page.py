"""Render run folders as one self-contained HTML page: no network, no other files, readable without scripts."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from tellapart import __version__
from tellapart.errors import TellapartError, UsageError
from tellapart.report.curves import CURVE, Chart, charts, trade_off
from tellapart.report.folder import Describe, RunFolder, read_run, unexplained
from tellapart.report.gallery import Album, GalleryView, view_gallery
from tellapart.report.tables import Overview, ResultsTable, overview, overview_headline, table, unique_names
from tellapart.report.verdict import BeforeAfter, compare, headline, statistics
from tellapart.utils.files import replace_text, writable_file

_HERE = Path(__file__).parent
# Recipe entries that say the most in a line; the whole recipe stands in a fold-out.
_SUMMARY_KEYS = ("name", "objective", "reward", "captioner", "scorer", "data", "steps", "epochs", "learning_rate", "lr",
            "batch", "batch_size", "samples", "baseline", "device")  # fmt: skip
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


@dataclass(frozen=True)
class RunView:
    """Holds what the template shows of one run; ``anchor`` is its id on the page."""

    anchor: str
    run: RunFolder
    headline: str
    statistics: str
    command: str
    facts: list[tuple[str, str]]
    summary: list[tuple[str, str]]
    comparison: BeforeAfter | None
    table: ResultsTable | None
    charts: list[Chart]
    more_charts: list[Chart]
    gallery: GalleryView | None


def build_report(runs: Sequence[Path], out: Path | None = None, *, describe: Describe = unexplained) -> Path:
    """Write one HTML page about ``runs`` (run folders) and return its path.

    ``out`` defaults to ``report.html`` in the run folder, for several runs in the current folder. The file is
    replaced in one step, so that a reader never meets half a page. Raises `UsageError` where a run is no run
    folder, `TellapartError` where the page cannot be written. ``describe``: see `read_run`.
    """
    if not runs:
        raise UsageError("no run was given; type: tellapart report RUN")
    folders = [read_run(Path(path), describe) for path in runs]
    default = (folders[0].path if len(folders) == 1 else Path()) / "report.html"
    out = Path(out) if out else default
    writable_file(out)
    words = [*map(str, runs), *(["-o", str(out)] if out.resolve() != default.resolve() else [])]
    _write(out, render(folders, shlex.join(["tellapart", "report", *words])))
    return out


def render(folders: Sequence[RunFolder], command: str) -> str:
    """The page as text. ``command``: the command that makes it again."""
    album = Album()
    views = [_view(folder, f"run{i + 1}", album) for i, folder in enumerate(folders)]
    several: Overview | None = overview(folders) if len(folders) > 1 else None
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return template(_HERE / "page.html").render(
        views=views,
        title=overview_headline(folders) if several else views[0].headline,
        overview=several,
        trade=trade_off(folders, unique_names(folders)),
        sprites=album.sprites(),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        curve=CURVE,
        command=command,
    )


def template(path: Path) -> jinja2.Template:
    """A page's template, in which every text is escaped and every name has to be known; ``base.html`` is its frame."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([path.parent, _HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable,
    )
    environment.globals |= {"style": (_HERE / "page.css").read_text(encoding="utf-8"), "version": __version__}
    return environment.get_template(path.name)


def printable(value: Any) -> Any:
    """Captions are untrusted: characters that UTF-8 cannot encode become the replacement character."""
    if not isinstance(value, str):
        return value
    return _UNPRINTABLE.sub("\ufffd", value) if _UNPRINTABLE.search(value) else value


def _view(run: RunFolder, anchor: str, album: Album) -> RunView:
    gallery = view_gallery(run, album)
    first, more = charts(run.log)
    return RunView(
        anchor,
        run,
        headline(run.results),
        statistics(run.results),
        run.info.command if isinstance(run.info.command, str) else shlex.join(run.info.command),
        _facts(run),
        _recipe_summary(run),
        compare(run.results) if run.results else None,
        table(run.results) if run.results else None,
        first,
        more,
        gallery,
    )


def _facts(run: RunFolder) -> list[tuple[str, str]]:
    """The facts about a run, as label and text."""
    info = run.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items() if version)
    facts = [
        ("Systems" if run.evaluation else "Run", run.name),
        ("Started", moment(info.created)),
        ("Took", duration(info.seconds) if info.seconds is not None else ""),
        ("Finished", "not yet" if not info.finished else moment(info.finished) if info.seconds is None else ""),
        ("Device", (info.device or "") + (f", {info.threads} threads" if info.device and info.threads else "")),
        ("Seed", "" if info.seed is None else str(info.seed)),
        ("Versions", versions),
        ("Commit", info.commit or ""),
        ("Folder", "" if run.evaluation else str(run.path.resolve())),
    ]
    return [(label, text) for label, text in facts if text]


def moment(text: str) -> str:
    """An ISO time as people read it; any other text as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when.day} {when:%B %Y, %H:%M}{' UTC' if when.utcoffset() is not None and not when.utcoffset() else ''}"


def duration(seconds: float) -> str:
    """Seconds in the two units that matter: ``3 min 12 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def _recipe_summary(run: RunFolder) -> list[tuple[str, str]]:
    """The main entries of the recipe with dotted keys; the details element has the whole recipe."""
    if run.recipe is None:
        return []
    try:
        entries = _flatten(tomllib.loads(run.recipe))
    except tomllib.TOMLDecodeError as error:
        run.gaps.append(f"recipe.toml is not TOML ({error}); it is shown as it is.")
        return []

    def place(key: str) -> int:
        parts = key.split(".")
        return min((_SUMMARY_KEYS.index(part) for part in parts if part in _SUMMARY_KEYS), default=len(_SUMMARY_KEYS))

    chosen = sorted((key for key in entries if place(key) < len(_SUMMARY_KEYS)), key=place)
    return [(key, entries[key]) for key in chosen[:12]]


def _flatten(table: dict[str, Any], start: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{start}{key}.")
        else:
            flat[f"{start}{key}"] = entry_text(value)
    return {key: text for key, text in flat.items() if text}


def entry_text(value: Any) -> str:
    """A recipe's entry as people read it: lists with commas, tables as ``kind, key value``; empty for an empty list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        texts = [entry_text(entry) for entry in value]
        return ("; " if any(isinstance(entry, dict) for entry in value) else ", ").join(filter(None, texts))
    if isinstance(value, dict):
        named = {key: entry_text(entry) for key, entry in value.items()}
        return ", ".join(text if key in ("kind", "name") else f"{key} {text}" for key, text in named.items() if text)
    return str(value)


def _write(out: Path, page: str) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_text(out, page, errors="replace")
    except OSError as error:
        raise TellapartError(
            f"{out} cannot be written ({error.strerror or error}); name another file with -o"
        ) from error
