"""``tellapart alt-text``: makes an alt text from each caption and writes the texts."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tellapart.captions.journal import new_change
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.paths_beside import common_folder
from tellapart.captions.replacement import Replace
from tellapart.data import Dataset
from tellapart.data.xmp import TextEvent
from tellapart.errors import UsageError
from tellapart.language.codes import language_code
from tellapart.models.names import is_server
from tellapart.purposes.alt_text import alt_texts
from tellapart.purposes.doubts import find_doubts, store_doubts
from tellapart.purposes.edited import Edited, without_text
from tellapart.purposes.embed import EmbedSettings, embed
from tellapart.purposes.hand_edits import with_edits
from tellapart.purposes.list_file import json_lines, write_lines
from tellapart.purposes.options import AltTextOptions
from tellapart.purposes.output_checks import check_files, refuse_other_language
from tellapart.purposes.source import read_source
from tellapart.purposes.variation import variations
from tellapart.utils.listed_names import few
from tellapart.utils.locks import locked
from tellapart.utils.messages import say
from tellapart.utils.write_errors import stdout_errors


def write_alt_texts(
    dataset: Dataset, pictures: Sequence[str], options: AltTextOptions, device: str, precision: str
) -> None:
    """Writes an alt text for each picture. A lock prevents other processes from writing to the same files.

    pictures: the data, as typed by the user.

    Raises:
        UsageError: if any file cannot be read or written; raised before anything is captioned.
    """
    items, replaces, own = list(dataset), Replace(options.overwrite, options.replace_edited), OwnFiles()
    language = options.language and language_code(options.language)
    out = "-" if options.out is None and len(items) == 1 else options.out
    folders = [None] * options.embed + [options.copies] * (options.copies is not None)
    with contextlib.ExitStack() as stack:
        if out == "-":
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "alt.jsonl"
        else:
            path = _checked_path(out)
        if options.doubtful and (options.model is None or is_server(options.model) or out == "-"):
            raise UsageError(
                "--doubtful requires a local captioner and an output file; pass --model NAME and -o alt.jsonl"
            )
        refuse_other_language(path, language)
        check_files(items, path, own, replaces, beside=None, mixed=True, copies=folders)
        stack.enter_context(locked(path.parent, wait=False, name=f".{path.name}.lock"))
        if options.embed:
            stack.enter_context(locked(common_folder(items), wait=False, name=".xmp.lock"))
        source = read_source(options, dataset, path, own, device, precision)
        several = [id_ for id_, texts in source.by_id.items() if len(texts) > 1]
        if several and options.model is None:
            say(f"{len(several):,} pictures have several captions; the first one is used: {few(several)}")
        edited = alt_texts(source.first, options.characters, long=options.long, language=language)
        for line in without_text(edited):
            say(line)
        edited, changed = with_edits(path, edited, replaces, items)
        if changed:
            say(
                f"{len(changed):,} texts in {path} were edited by hand and were kept; pass --replace-edited to "
                "replace them"
            )
        variation = variations(source.by_id, language)
        edited = {id_: replace(one, variation=variation.get(id_, {})) for id_, one in edited.items()}
        if out == "-":
            with stdout_errors():
                sys.stdout.write(json_lines(items, edited))
        else:
            change = new_change("alt-text", source.author)
            say(f"wrote {write_lines(path, items, edited, own, change, changed):,} texts to {path}")
            captioner = source.captioner() if options.doubtful and source.captioner is not None else None
            doubts = find_doubts(dataset, edited, changed, language, captioner)
            store_doubts(path, dataset, doubts, source.by_id, variation, source.author, change)
        event = TextEvent(source.agent, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        embedding = new_change("embed", source.author)
        for folder in folders:
            _embed(dataset, edited, own, EmbedSettings(replaces.edited, folder, language, event, embedding))
        if out != "-":
            named = pictures[0] if len(pictures) == 1 else "FOLDER"
            say(f"{len(doubts):,} of {len(items):,} alt texts need checking; to review them, run: "
                f"{shlex.join(['tellapart', 'review', named, str(path)])}")  # fmt: skip


def _checked_path(out: str | None) -> Path:
    """Returns the output file. Raises `UsageError` if its format cannot store the texts."""
    if out is None:
        raise UsageError("missing output file for the alt texts; use -o alt.jsonl, or -o - to print them")
    path = Path(out)
    if path.suffix.lower() not in (".jsonl", ".csv"):
        raise UsageError(f"-o {path}: expected a .jsonl or .csv file")
    return path


def _embed(dataset: Dataset, edited: Mapping[str, Edited], own: OwnFiles, settings: EmbedSettings) -> None:
    """Writes alt text as XMP, next to the pictures or into copies, and prints the number of files."""
    done, folder = embed(list(dataset), edited, own, settings), settings.folder
    where = "beside the pictures" if folder is None else f"in {folder}"
    copies = f"{done.copies:,} copies of pictures and " if folder is not None else ""
    say(f"wrote {copies}{done.sidecars:,} .xmp files {where}")
    if done.others:
        say(
            f"{len(done.others):,} pictures also have a sidecar written by another program such as "
            f"darktable, which will not read the new .xmp: {', '.join(done.others[:3])}; these "
            "sidecars are unchanged"
        )
    if done.stayed:
        say(
            f"{len(done.stayed):,} pictures already have an alt text from another source, or one that was emptied "
            f"since, and were left unchanged: {', '.join(done.stayed[:3])}; pass --replace-edited to replace them"
        )
