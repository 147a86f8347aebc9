"""Caption files, references and data of an evaluation, matched by the ids that all have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.data.caption_files import CaptionFile, preview_ids, read_reference_file
from tellapart.data.caption_matching import (
    KnownIds,
    align_lists,
    check_overlap,
    match_captions,
    report_problems,
    with_text,
)
from tellapart.errors import UsageError
from tellapart.evaluation.slots import CHANCE, HUMAN
from tellapart.utils.messages import detail

if TYPE_CHECKING:
    from tellapart.data import Dataset
    from tellapart.types import Item


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Systems are called by the stem of their file, or by folder and stem where stems are equal."""
    paths = [Path(path) for path in paths]
    for name_of in (lambda path: path.stem, lambda path: f"{path.absolute().parent.name}/{path.stem}"):
        names = {name_of(path): path for path in paths}
        if len(names) == len(paths):
            return names
    raise UsageError("two caption files have the same name; rename one, for a system is named after its file")


def read_references(paths: Path | Sequence[Path] | None) -> CaptionFile | None:
    """The references of every id, of all files together; None where there is no file."""
    files = [read_reference_file(path) for path in ([paths] if isinstance(paths, str | Path) else paths or ())]
    files.sort(key=lambda file: file.numbered)  # those with ids first: lines are matched with them by their place
    if len(files) < 2:
        return files[0] if files else None
    whole = CaptionFile("the references", {}, {}, numbered=all(file.numbered for file in files))
    for file in files:
        matched = match_captions(
            file, KnownIds("the references", list(whole.texts), whole.files, whole.numbered), file.name
        )
        for id_, texts in (matched if whole.texts else file).texts.items():
            whole.texts.setdefault(id_, []).extend(texts)
        whole.files.update(file.files)
    return whole


def open_optional(data: str | None) -> Dataset | None:
    if data is None:
        return None
    from tellapart.data import open_data

    return open_data(data)


def match_files(
    systems: Mapping[str, CaptionFile],
    references: CaptionFile | None,
    dataset: Dataset | None,
    allow_missing: bool,
    min_overlap: float,
) -> tuple[dict[str, dict[str, list[str]]], dict[str, list[str]] | None, list[str]]:
    """Captions and references by the ids that all have; `UsageError` where some differ and may not.

    The ids are those of the data, else of the references, else of the first system. The notes say how files that name
    pictures differently were matched.
    """
    notes = dataset.report() if dataset is not None else []
    if references is not None:
        references = replace(references, texts=with_text(references.texts))
    known_references = None if references is None else references.texts
    if dataset is not None:
        known = KnownIds("the data", [item.id for item in dataset], _files(dataset))
        if references is not None:
            matched = match_captions(references, known, "references")
            known_references, notes = matched.texts, notes + _note(matched.how)
    else:
        first = references or next(iter(systems.values()), CaptionFile("", {}))
        whose = "the references" if references is not None else "the first caption file"
        known = KnownIds(whose, list(first.texts), first.files, first.numbered)
    ids = [key for key in known.ids if known_references is None or known_references.get(key)]
    if known_references is not None:
        if dataset is not None:
            check_overlap(len(ids), len(known.ids), "references", known.name, min_overlap)
        lacking = [key for key in known.ids if not known_references.get(key)]
        what = "pictures of the data have no reference" if dataset is not None else "entries have no text"
        notes += report_problems({what: lacking}, "references", allow_missing)
    matches = {name: match_captions(file, known, name) for name, file in systems.items()}
    if dataset is not None and (lost := _unreadable(dataset, ids, [own.texts for own in matches.values()])):
        notes.append(dataset.unreadable.line(len(dataset)) or "")
        ids = [key for key in ids if key not in lost]
        matches = {name: replace(own, texts=_without(own.texts, lost)) for name, own in matches.items()}
    kept = {}
    for name, file in systems.items():
        matched = matches[name]
        detail(matched.how or f"{name}: {len(file.texts)} ids matched with {known.name} as they stand")
        kept[name], more = align_lists(matched.texts, ids, allow_missing, name, known.name, min_overlap)
        notes += [*_note(matched.how), *more]
    common = [key for key in ids if all(key in captions for captions in kept.values())]
    if not common and systems:
        raise UsageError("no picture has a caption of every system; give caption files about the same pictures")
    for name, own in kept.items():
        check_overlap(len(common), len(own), name, "the other systems", min_overlap)
    return {name: {key: own[key] for key in common} for name, own in kept.items()}, known_references, notes


def _unreadable(dataset: Dataset, ids: Sequence[str], captions: Sequence[Mapping[str, list[str]]]) -> set[str]:
    """The ids that some system has no caption of because the picture cannot be read: `caption` left them out.

    Pictures are opened only where most have captions: else the files are about other ones, which is said elsewhere.
    """
    lacking = {key for key in ids if not all(texts.get(key) for texts in captions)}
    if 2 * len(lacking) > len(ids):
        return set()
    return {item.id for item in dataset if item.id in lacking and dataset.load_image(item) is None}


def _without(texts: dict[str, list[str]], ids: set[str]) -> dict[str, list[str]]:
    return {key: own for key, own in texts.items() if key not in ids}


def _files(dataset: Dataset) -> dict[str, str]:
    """The file of each picture that is one."""
    paths = ((item.id, getattr(item.picture, "path", None)) for item in dataset)
    return {id_: str(path) for id_, path in paths if path is not None}


def with_ids(dataset: Dataset | None, ids: Sequence[str]) -> Dataset | None:
    if dataset is None:
        return None
    wanted = set(ids)
    return dataset.subset([row for row, item in enumerate(dataset) if item.id in wanted])


def _note(how: str | None) -> list[str]:
    """How a file was matched, as a note; nothing where its ids were those of the other side."""
    return [] if how is None else [how]


def same_ids(systems: Mapping[str, Mapping[str, str | Sequence[str]]], items: Sequence[Item] | None) -> list[str]:
    """The ids in the order of the items, else of the first system. `UsageError` where a system's differ."""
    if not systems:
        raise UsageError("no captions to evaluate; add --captions FILE")
    for name in (HUMAN, CHANCE):
        if name in systems:
            raise UsageError(
                f"a system may not be called '{name}': that is the name of a reference system; rename the caption file"
            )
    first = next(iter(systems))
    ids = [item.id for item in items] if items is not None else list(systems[first])
    known = set(ids)
    for name, captions in systems.items():
        lacking = [key for key in ids if key not in captions]
        unknown = [key for key in captions if key not in known]
        if lacking or unknown:
            whose = "the data" if items is not None else f"'{first}'"
            raise UsageError(
                f"'{name}' and {whose} are not about the same pictures: {len(lacking)} have no caption "
                f"({preview_ids(lacking)}), {len(unknown)} captions have no picture ({preview_ids(unknown)})"
            )
    if not ids:
        raise UsageError("no pictures to evaluate; the captions or the data are empty")
    return ids


def references_of(
    ids: list[str], items: Sequence[Item] | None, references: Mapping[str, Sequence[str]] | None
) -> tuple[list[list[str]] | None, list[str]]:
    """References in the order of the ids: those given, else the items'. None, with a note, where some lack."""
    if references is None:
        if items is None or not any(item.references for item in items):
            return None, []
        references = {item.id: item.references for item in items}
    all_references = [list(references.get(key, ())) for key in ids]
    without = [key for key, texts in zip(ids, all_references, strict=True) if not texts]
    if without:
        return None, [f"{len(without)} pictures have no reference ({preview_ids(without)}): references are not used"]
    return all_references, []


def lists_of(name: str, captions: Mapping[str, str | Sequence[str]], ids: Sequence[str]) -> list[list[str]]:
    """The captions of each picture, in the order of the ids. `UsageError` where a picture has an empty list."""
    lists = [[text] if isinstance(text, str) else list(text) for text in (captions[key] for key in ids)]
    mute = [key for key, texts in zip(ids, lists, strict=True) if not texts]
    if mute:
        raise UsageError(
            f"'{name}' has an empty list of captions of {preview_ids(mute)}; give at least one, or an empty one"
        )
    return lists
