"""Matches an evaluation's caption files, references and data by their common ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tellapart.data import Dataset
from tellapart.data.caption_alignment import align_lists, check_overlap, report_problems
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_files import read_reference_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.empty_captions import with_text
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.messages import detail


def name_systems(paths: Sequence[Path]) -> dict[str, Path]:
    """Names each system after its file's stem. Adds folder names in front if needed to make the names unique.

    Raises `UsageError` if a file is given twice, or if two files in one folder have the same stem.
    """
    whole = [Path(path).absolute().with_suffix("").parts for path in paths]
    for parts in range(1, max(map(len, whole), default=1) + 1):
        names = {"/".join(each[-parts:]): Path(path) for each, path in zip(whole, paths, strict=True)}
        if len(names) == len(paths):
            return names
    raise UsageError(
        "two caption files have the same name; rename one of them, because systems are named after their files"
    )


def read_references(paths: Path | Sequence[Path] | None) -> CaptionFile | None:
    """Reads each id's references from all files. Returns None if no files are given."""
    files = [read_reference_file(path) for path in ([paths] if isinstance(paths, str | Path) else paths or ())]
    # Files with ids come first, because the lines of files without ids are matched to these ids by position.
    files.sort(key=lambda file: file.numbered)
    if len(files) < 2:
        return files[0] if files else None
    whole = CaptionFile("the references", {}, {}, numbered=all(file.numbered for file in files))
    for file in files:
        known = KnownIds(files[0].name, list(whole.texts), whole.files, whole.numbered)
        texts_of = match_captions(file, known, file.name).texts if whole.texts else file.texts
        for id_, texts in texts_of.items():
            whole.texts.setdefault(id_, []).extend(texts)
        whole.files.update(file.files)
    return whole


def match_files(
    systems: Mapping[str, CaptionFile],
    references: CaptionFile | None,
    dataset: Dataset | None,
    allow_missing: bool,
    min_overlap: float,
    needed: Collection[str] = (),
) -> tuple[dict[str, dict[str, list[str]]], dict[str, list[str]] | None, list[str]]:
    """Returns captions and references by common ids, and notes. Raises `UsageError` if the files differ too much.

    The ids come from the data if given, otherwise from the references if given, otherwise from the first system. The
    notes say how files with different picture names were matched. ``needed``: the targets of candidate sets. If given,
    ``min_overlap`` refers to these targets instead of all pictures in the data.
    """
    notes = dataset.report() if dataset is not None else []
    if references is not None:
        texts, empty = with_text(references.texts)
        references, notes = replace(references, texts=texts), notes + empty
    known_references = None if references is None else references.texts
    if dataset is not None:
        known = KnownIds.of_files("the data", dataset)
        if references is not None:
            matched = match_captions(references, known, "references")
            known_references, notes = matched.texts, notes + note_of(matched.how)
    else:
        first = references or next(iter(systems.values()), CaptionFile("", {}))
        whose = "the references" if references is not None else "the first caption file"
        known = KnownIds(whose, list(first.texts), first.files, first.numbered)
    ids = [key for key in known.ids if known_references is None or known_references.get(key)]
    if known_references is not None:
        if dataset is not None:
            check_overlap(len(ids), len(known.ids), "references", known.name, min_overlap)
        lacking = [key for key in known.ids if not known_references.get(key)]
        what = "pictures in the data have no reference" if dataset is not None else "entries have no text"
        notes += report_problems({what: lacking}, "references", allow_missing)
    matches = {name: match_captions(file, known, name) for name, file in systems.items()}
    if dataset is not None and (lost := _unreadable(dataset, ids, [own.texts for own in matches.values()])):
        notes.append(dataset.unreadable.line(len(dataset)) or "")
        ids = [key for key in ids if key not in lost]
        matches = {name: replace(own, texts=_without(own.texts, lost)) for name, own in matches.items()}
    kept = {}
    for name, file in systems.items():
        matched = matches[name]
        detail(matched.how or f"{name}: {len(file.texts)} ids are identical to those of {known.name}")
        kept[name], more = align_lists(matched.texts, ids, allow_missing, name, known.name, min_overlap, needed)
        notes += [*note_of(matched.how), *more]
    common = [key for key in ids if all(key in captions for captions in kept.values())]
    if not common and systems:
        raise UsageError("no picture has captions from every system; pass caption files for the same pictures")
    for name, own in kept.items():
        check_overlap(len(common), len(own), name, "the other systems", min_overlap)
    return {name: {key: own[key] for key in common} for name, own in kept.items()}, known_references, notes


def _unreadable(dataset: Dataset, ids: Sequence[str], captions: Sequence[Mapping[str, list[str]]]) -> set[str]:
    """Returns the ids that lack a caption in some system because `caption` skipped a picture that it could not read.

    Opens pictures only if most pictures have captions. Otherwise, the files describe other pictures, which is reported
    elsewhere.
    """
    lacking = {key for key in ids if not all(texts.get(key) for texts in captions)}
    if 2 * len(lacking) > len(ids):
        return set()
    return {item.id for item in dataset if item.id in lacking and dataset.load_image(item) is None}


def _without(texts: dict[str, list[str]], ids: set[str]) -> dict[str, list[str]]:
    return {key: own for key, own in texts.items() if key not in ids}


def with_references(
    systems: Mapping[str, dict[str, list[str]]], dataset: Dataset, allow_missing: bool
) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Returns the captions of pictures that have a reference in the data, and notes on pictures without one.

    Raises `UsageError` if some pictures have no reference, unless ``allow_missing`` is true. If no picture has a
    reference, keeps all pictures; metrics that need references then report that they are missing.
    """
    ids = next(iter(systems.values()), {})
    lacking = {item.id for item in dataset if item.id in ids and not item.references}
    if len(lacking) == len(ids):
        return dict(systems), []
    notes = report_problems({"pictures have no reference": sorted(lacking)}, "the data", allow_missing)
    return {name: _without(own, lacking) for name, own in systems.items()}, notes


def with_ids(dataset: Dataset | None, ids: Sequence[str]) -> Dataset | None:
    """Returns the items with these ids, in the order of the data. Returns None if there is no data."""
    if dataset is None:
        return None
    wanted = set(ids)
    return dataset.subset([row for row, item in enumerate(dataset) if item.id in wanted])


def note_of(how: str | None) -> list[str]:
    """Returns a note on how a file was matched, or an empty list if the ids were identical."""
    return [] if how is None else [how]


def captioned_ids(ids: Sequence[str], items: Sequence[Item] | None) -> KnownIds:
    """Returns the captioned pictures, so that names in another file can be matched to them."""
    return KnownIds("the captions", ids, {} if items is None else {item.id: item.picture.name for item in items})
