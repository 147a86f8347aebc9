"""``tellapart captions``: lists the captions of a folder, shows their history, and undoes changes."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import rich.table
import typer

from tellapart.captions.authors import Author
from tellapart.captions.formats import METADATA
from tellapart.captions.journal import Journal
from tellapart.captions.list_layout import ListFile
from tellapart.captions.sidecar_layout import BESIDE, Sidecars
from tellapart.captions.store import CaptionStore, StoredCaption
from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Json
from tellapart.cli.output import show
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError, nearest
from tellapart.utils.listed_names import few
from tellapart.utils.messages import say
from tellapart.utils.tables import table_of
from tellapart.utils.terminal_text import for_terminal

app = App(
    name="captions",
    help="Show the captions of a folder and who wrote them, and undo changes.",
    no_args_is_help=True,
    rich_help_panel=MEASURING,
)


Folder = Annotated[Path, typer.Argument(help="Folder of pictures.")]
Captions = Annotated[
    Path | None,
    typer.Option(
        "--captions",
        help="Caption file, or a suffix: .txt, .xmp. Default: auto-detected in the folder.",
    ),
]


def _opened(folder: Path, captions: Path | None) -> CaptionStore:
    """Opens the captions of a folder. Raises `UsageError` if the named file neither exists nor has a history."""
    store = CaptionStore.open(folder, captions)
    suffix = captions is not None and str(captions).lower() in (*BESIDE, ".xmp")
    if captions is not None and not suffix and not captions.exists() and not store.changes():
        raise UsageError(f"--captions {captions}: no such file; expected a file of captions, or a suffix: .txt, .xmp")
    return store


@app.command("list")
def list_captions(folder: Folder, captions: Captions = None, as_json: Json = False) -> None:
    """List each picture's caption, and who wrote it."""
    found = _opened(folder, captions).captions()
    show([_record(one) for one in found.values()], lambda: _table(found), as_json)
    counts = Counter(_writer(one.author) for one in found.values() if one.author is not None)
    written = ", ".join(f"{count:,} by {name}" for name, count in counts.most_common())
    bare = sum(one.author is None for one in found.values())
    say(f"{len(found):,} pictures: {', '.join(filter(None, (written, f'{bare:,} without a caption' if bare else '')))}")


@app.command()
def history(
    folder: Folder,
    picture: Annotated[str | None, typer.Argument()] = None,
    captions: Captions = None,
    as_json: Json = False,
) -> None:
    """Show the changes to a folder's captions, or all versions of one picture's caption, newest first.

    Args:
        picture: Id of a picture. Default: show the changes to the whole folder.
    """
    store = _opened(folder, captions)
    if picture is None:
        active = {change.id for change in store.active()}
        rows = [
            {
                "time": _local(change.time),
                "what": change.what if change.id in active else f"{change.what} (undone)",
                "by": _writer(change.author),
                "captions": store.size(change.id),
            }
            for change in reversed(store.changes())
        ]
        show(rows, lambda: _columns(rows), as_json)
        return
    if picture not in store.items:
        raise UsageError(f"{folder} has no picture '{picture}'{nearest(picture, list(store.items))}")
    versions = [
        {
            "time": _local(version.change.time),
            "what": version.change.what,
            "by": _writer(version.author),
            "text": (version.after or "").strip(),
            "before": version.before and version.before.strip(),
        }
        for version in store.history(picture)
    ]
    first = store.caption(picture).text if not versions else versions[-1]["before"]
    if first:
        versions.append({"time": "", "what": "found", "by": "a person", "text": first, "before": None})
    show(versions, lambda: _columns([{k: v for k, v in row.items() if k != "before"} for row in versions]), as_json)


@app.command()
def undo(
    folder: Folder,
    captions: Captions = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="N")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME")] = None,
) -> None:
    """Undo changes to captions. Captions that another program has since changed are kept.

    Args:
        last: Undo the last N changes. Default: 1.
        to: Undo all changes after this local time: 14:05 or '2026-11-28 14:05:00'.
    """
    if last is not None and to is not None:
        raise UsageError("--last and --to cannot be combined; remove one of them")
    store = _opened(folder, captions)
    if moved := store.follow():
        say(f"moved {len(moved):,} captions along with their renamed or moved pictures")
    ids = store.since(_utc(to)) if to is not None else store.last(last or 1)
    if not ids:
        say(f"{folder}: no changes to undo{f' after {to}' if to else ''}")
        return
    chosen = set(ids)
    changed = {change.what for change in store.changes() if change.id in chosen}
    done = store.undo(ids)
    changes = f"{len(ids):,} changes" if len(ids) > 1 else "1 change"
    say(f"undid {changes}: restored {len(done.written):,} captions")
    if done.stayed:
        say(f"{len(done.stayed):,} captions have changed since and were kept: {few(done.stayed, 5)}")
    if "alt-text" in changed and isinstance(store.layout, ListFile) and _embedded(store):
        command = ["tellapart", "captions", "undo", str(folder), "--captions", ".xmp"]
        say(f"the .xmp files beside the pictures were not changed; to undo their last change as well, run: "
            f"{shlex.join(command)}")  # fmt: skip
    listed = folder / METADATA  # tellapart lora writes its captions to this file, too
    if captions is None and isinstance(store.layout, Sidecars) and listed.is_file():
        say(f"{listed} was not changed; to undo its last change as well, run: "
            f"{shlex.join(['tellapart', 'captions', 'undo', str(folder), '--captions', str(listed)])}")  # fmt: skip


def _embedded(store: CaptionStore) -> bool:
    """Returns whether ``alt-text --embed`` has written .xmp files beside the pictures."""
    folders = {item.picture.path.parent for item in store.items.values() if isinstance(item.picture, FilePicture)}
    return any("*.xmp" in Journal.open(folder).rows for folder in folders)


def _utc(typed: str) -> str:
    """Converts a local time to the format of the journal. Raises `UsageError`."""
    now = datetime.now().astimezone()
    try:
        time = datetime.fromisoformat(typed if "-" in typed else f"{now:%Y-%m-%d} {typed}")
    except ValueError:
        raise UsageError(f"--to {typed}: expected a time such as 14:05 or '{now:%Y-%m-%d %H:%M:%S}'") from None
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def _local(time: str) -> str:
    return f"{datetime.fromisoformat(time).replace(tzinfo=UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _writer(author: Author | None) -> str:
    return "" if author is None else "a person" if author.is_person else author.model


def _record(caption: StoredCaption) -> dict[str, Any]:
    """Returns a caption as JSON, without empty fields."""
    record: dict[str, Any] = {"id": caption.id, "caption": caption.text}
    if caption.author is not None:
        record["author"] = caption.author.to_json() or {"person": True}
    rest = {"accepted": caption.accepted, "decorative": caption.decorative, "language": caption.language}
    rest |= {"candidates": caption.candidates, "doubts": caption.doubts, "texts": dict(caption.texts)}
    rest["variation"] = caption.variation
    return record | {name: value for name, value in rest.items() if value}


def _table(found: dict[str, StoredCaption]) -> rich.table.Table:
    states = {id_: "decorative" if one.decorative else "accepted" if one.accepted else "" for id_, one in found.items()}
    rows = [{"picture": id_, "caption": one.text, "by": _writer(one.author), "state": states[id_]}
            for id_, one in found.items()]  # fmt: skip
    return _columns(rows)


def _columns(rows: list[dict[str, Any]]) -> rich.table.Table:
    cells = [[for_terminal(str(value)) for value in row.values()] for row in rows]
    return table_of(tuple(rows[0]) if rows else ("no changes",), cells)
