"""Checks a caption file for all kinds of defects that can be found with the given pictures and models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tellapart.check import captions as checks
from tellapart.check.kinds import DEFECTS, PICTURE, Finding
from tellapart.check.pictures import check_pictures
from tellapart.check.result import Check
from tellapart.data import Dataset
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.skipped import Skipped
from tellapart.errors import UsageError
from tellapart.language.codes import language_code
from tellapart.types import Item
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from tellapart.captioners import Captioner
    from tellapart.scorers import Scorer


def check_captions(
    file: CaptionFile,
    dataset: Dataset | None,
    *,
    references: CaptionFile | None = None,
    language_name: str = "en",
    scorer: Scorer | None = None,
    captioner: Captioner | None = None,
) -> Check:
    """Checks for all kinds of defects that can be found with the given inputs.

    dataset: the pictures; None checks only the captions.
    references: required by ``leaked`` and ``mispaired``.
    language_name: a language code. If the language is not in `LANGUAGES`, a note says that it is not checked.

    Raises `UsageError` if captions and pictures have no ids in common, or if ``language_name`` is not a code.
    """
    if dataset is None and (scorer or captioner):
        raise UsageError("a scorer or captioner requires pictures; run: tellapart check CAPTIONS PICTURES")
    expected = language_code(language_name, checks.LANGUAGES).partition("-")[0]
    texts, notes, items, findings = dict(file.texts), list[str](), list[Item](), list[Finding]()
    if dataset is not None:
        texts, notes = _matched(file, dataset)
        items = list(dataset)
        findings += [*_pairing(texts, items, dataset.missing), *check_pictures(items)]
    rows = checks.rows_of(texts)
    pictures = checks.pictures_of(rows)
    of_captions: dict[str, Iterable[checks.Defect]] = {
        "empty": checks.each(checks.empty, rows),
        "refusal": checks.each(checks.refusal, rows),
        "loop": checks.each(checks.loop, rows),
        "encoding": checks.each(checks.encoding, rows),
        "cut": checks.cut(rows),
        "template": checks.template(rows),
        "repeated": checks.repeated(rows),
        "shared": checks.shared(rows, pictures),
        "near": checks.near(rows, pictures),
        "neighbour": checks.neighbour(rows),
    }
    if expected in checks.LANGUAGES:
        of_captions["language"] = checks.each(partial(checks.language, expected=expected), rows)
    else:
        notes.append(f"language: not checked, because '{expected}' is not one of {', '.join(checks.LANGUAGES)}")
    if references is not None:
        if dataset is None:
            known_ids = KnownIds(file.name, list(texts), file.files, file.numbered)
            matched = match_captions(references, known_ids, "references")
            own = matched.texts
            notes += [matched.how] if matched.how else []
        else:
            own = _matched(references, dataset)[0]
        of_captions |= {"leaked": checks.leaked(rows, own), "mispaired": checks.mispaired(rows, own)}
    findings += [Finding(kind, row.id, row.text, why) for kind, some in of_captions.items() for row, why in some]
    said = [len(pictures[row.plain]) for row in rows if row.words]
    facts = {"mean number of other pictures with the same caption": float(np.mean(said)) - 1 if said else float("nan")}
    unreadable = {one.id for one in findings if one.kind == "unreadable"}
    readable = [item for item in items if item.id not in unreadable and texts.get(item.id)]
    given = {"references": references, "scorer": scorer, "captioner": captioner}
    skipped = skipped_kinds(given, dataset, expected)
    models = [name for name in ("scorer", "captioner") if given[name] is not None]
    if models and (len(readable) < 2 or not said):
        required = "at least two readable pictures with captions"
        say(f"skipping the {' and the '.join(models)}: {required} are required")
        skipped |= {kind.name: required for kind in DEFECTS.values() if kind.needs in models}
        scorer = captioner = None
    # Models are imported only here, because torch loads slower than the other checks run.
    if scorer is not None:
        from tellapart.check.scorer import ask_scorer

        more, statistics = ask_scorer(rows, readable, scorer)
        findings, facts = findings + more, facts | statistics
    if captioner is not None:
        from tellapart.check.captioner import ask_captioner

        more, statistics = ask_captioner(rows, readable, captioner)
        findings, facts = findings + more, facts | statistics
    found = {name: [one for one in findings if one.kind == name] for name in DEFECTS}
    missing = 0 if dataset is None else len(dataset.missing)
    return Check(len(rows), len(items) + missing, found, facts, notes, skipped)


def _pairing(texts: Mapping[str, Sequence[str]], items: Sequence[Item], missing: Skipped) -> Iterator[Finding]:
    """Yields the pictures that cannot be read, the captions without a picture, and the pictures without a caption."""
    yield from (Finding("unreadable", key, detail=why) for key, why in missing)
    known = {item.id for item in items} | {part for key, _ in missing for part in (key, Path(key).name)}
    yield from (Finding("no picture", key, text) for key, own in texts.items() if key not in known for text in own)
    yield from (Finding("no caption", item.id) for item in items if not texts.get(item.id))


def skipped_kinds(given: Mapping[str, object], pictures: object, language: str) -> dict[str, str]:
    """Returns the kinds that cannot be checked with the given inputs, and the argument that each of them requires.

    given: the references, the scorer and the captioner by name; None if missing. pictures: None if missing.
    """
    skipped = {kind.name: f"--{kind.needs}" for kind in DEFECTS.values() if kind.needs and given[kind.needs] is None}
    if pictures is None:
        of_pictures = [kind.name for kind in DEFECTS.values() if kind.of == PICTURE]
        skipped |= dict.fromkeys([*of_pictures, "no picture"], "PICTURES")
    if language not in checks.LANGUAGES:
        skipped["language"] = f"--language, one of {', '.join(checks.LANGUAGES)}"
    return skipped


def _matched(file: CaptionFile, dataset: Dataset) -> tuple[dict[str, list[str]], list[str]]:
    known = KnownIds.of(dataset.spec, list(dataset))
    matched = match_captions(file, known, file.name)
    if known.ids and not matched.texts.keys() & known.ids:
        raise UsageError(f"{file.name} and {dataset.spec} have no ids in common; are they about the same pictures?")
    return matched.texts, [matched.how] if matched.how else []
