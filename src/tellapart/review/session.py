"""The review session: a folder's numbered captions, and the operations that the page offers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tellapart.captions.store import MOVE, STATE, CaptionStore, Edit, StoredCaption, WriteResult
from tellapart.errors import UsageError
from tellapart.language.sentences import sentences
from tellapart.language.stock_phrases import refusal, without_opening
from tellapart.review.batch_edits import BatchEdit
from tellapart.utils.untrusted_text import clean_text

if TYPE_CHECKING:
    from tellapart.review.fit_finder import FitFinder
    from tellapart.review.recaptioner import Recaptioner

LONGEST_TEXT = 20_000  # maximum number of characters of a caption
LOOK_ALIKES = 12
EDITABLE = {"accepted": bool, "decorative": bool, "language": str}
Answer = dict[str, Any]  # the response to a request, as JSON


class ReviewSession:
    """The captions of a folder, numbered from 0 in the order of the pictures. Thread-safe."""

    def __init__(
        self, store: CaptionStore, name: str, finder: FitFinder | None = None, recaptioner: Recaptioner | None = None
    ) -> None:
        self.store, self.name, self.finder, self.recaptioner = store, name, finder, recaptioner
        self.ids = list(store.items)
        self._numbers = {id_: number for number, id_ in enumerate(self.ids)}
        self._lock = threading.RLock()
        self._known: dict[str, StoredCaption] = {}
        self._revisions: list[set[int]] = []  # rows that changed in each revision
        self._changed: set[int] = set()  # rows changed on this page since it was started

    # Reading.

    def refresh(self, ids: Sequence[str] | None = None) -> int:
        """Reads captions (None: all) from disk. Returns the revision, which increases whenever a row changes."""
        with self._lock:
            now = self.store.captions(ids)
            changed = {self._numbers[id_] for id_, one in now.items() if self._known.get(id_) != one}
            self._known |= now
            if changed:
                self._revisions.append(changed)
            return len(self._revisions)

    def state(self) -> Answer:
        """Returns everything that the page shows except for the pixels."""
        with self._lock:
            revision = self.refresh()
            return {
                "name": self.name,
                "layout": self.store.layout.name,
                "writable": self.store.layout.writable,
                "scorer": self.finder is not None,
                "model": self.recaptioner is not None,
                "revision": revision,
                "rows": [self.row(number) for number in range(len(self.ids))],
                **self.undoable(),
            }

    def row(self, number: int) -> Answer:
        """Returns a row as the page needs it, without empty fields."""
        one = self._known[self.ids[number]]
        stored = {kind for kind, _ in one.doubts}
        doubts = [f"{kind}: {detail}" if detail else kind for kind, detail in one.doubts]
        doubts += [line for line in doubts_of(one.text) if line.partition(":")[0] not in stored]
        row = {
            "id": one.id,
            "text": one.text,
            "by": "" if one.author is None else "person" if one.author.is_person else one.author.model,
            "version": one.version,
            "accepted": one.accepted,
            "decorative": one.decorative,
            "language": one.language,
            "candidates": list(one.candidates),
            "doubts": [] if one.accepted or one.decorative else doubts,
            "texts": dict(one.texts),
            "variation": one.variation,
            "changed": number in self._changed,
        }
        return {name: value for name, value in row.items() if value or name in ("id", "text", "version")}

    def since(self, revision: int, *, look: bool) -> Answer:
        """Returns the rows that changed after a revision. ``look``: whether to read changes by other programs first."""
        with self._lock:
            now = self.refresh() if look else len(self._revisions)
            numbers = sorted(set[int]().union(*self._revisions[max(0, revision) :]))
            return {"revision": now, "rows": {number: self.row(number) for number in numbers}, **self.undoable()}

    def undoable(self) -> Answer:
        """Returns the change that undo would revert, and the undo that redo would revert.

        Each is None if there is no such change.
        """
        active = self.store.active()
        last = next((change for change in reversed(active) if not change.undoes and change.what != MOVE), None)
        undone = active[-1] if active and active[-1].undoes else None
        return {"undo": last and {"id": last.id, "what": last.what}, "redo": undone and undone.id}

    def history(self, number: int) -> list[dict[str, Any]]:
        """Returns the versions of a caption, newest first."""
        return [
            {
                "time": version.change.time,
                "what": version.change.what,
                "by": "person" if version.author.is_person else version.author.model,
                "prompt": version.author.prompt,
                "before": (version.before or "").strip(),
                "text": (version.after or "").strip(),
            }
            for version in self.store.history(self.ids[number])
        ]

    # Writing.

    def write(self, edits: Mapping[int, Mapping[str, Any]], what: str) -> Answer:
        """Saves a person's edits to rows, given the edited fields and the version of the row that the person saw."""
        changes, versions = dict[str, Edit](), dict[str, str]()
        for number, fields in edits.items():
            id_ = self.ids[number]
            changes[id_], versions[id_] = checked_edit(fields), str(fields.get("version", ""))
        return self._saved(self.store.write(changes, what, versions=versions))

    def batch(self, numbers: Sequence[int], what: str, edit: BatchEdit) -> Answer:
        """Applies a function to the current captions of many rows, as one change."""
        with self._lock:
            edits = {id_: edit(caption) for id_, caption in self._captions(numbers).items()}
            return self._saved(self.store.write({id_: one for id_, one in edits.items() if one is not None}, what))

    def _captions(self, numbers: Sequence[int]) -> dict[str, StoredCaption]:
        return self.store.captions([self.ids[number] for number in numbers])

    def undo(self, change: str) -> Answer:
        """Undoes one change, which may itself be an undo. Raises `UsageError` if it has already been undone."""
        with self._lock:
            if change not in {one.id for one in self.store.active()}:
                raise UsageError("this change has already been undone; the page shows the current captions")
            done = self.store.undo([change])
            message = f"{len(done.stayed):,} captions have since been changed and were kept" if done.stayed else ""
            return self._saved(done, message)

    def recaption(self, numbers: Sequence[int]) -> Answer:
        """Recaptions pictures, but keeps texts that people wrote. Raises `UsageError` if there is no captioner."""
        if self.recaptioner is None:
            raise UsageError("no captioner loaded; start the review with --model MODEL --scorer MODEL")
        ids = [id_ for id_, caption in self._captions(numbers).items() if not caption.is_persons]
        edits = self.recaptioner.captions(ids) if ids else {}
        done = self.store.write(edits, "recaption", self.recaptioner.author)
        stay = len(numbers) - len(ids) + len(done.stayed)
        message = f"{len(done.written):,} recaptioned" + (f"; {stay:,} hand-written captions were kept" if stay else "")
        return self._saved(done, message)

    def _saved(self, done: WriteResult, message: str = "") -> Answer:
        """Returns the response to a change, with the current state of the changed rows."""
        with self._lock:
            written, conflicts = ([self._numbers[id_] for id_ in ids] for ids in (done.written, done.conflicts))
            self._changed.update(written)
            self.refresh([*done.written, *done.conflicts])
            rows = {number: self.row(number) for number in sorted({*written, *conflicts})}
            return {"rows": rows, "conflicts": conflicts, "message": message, **self.undoable()}

    # These operations need the scorer.

    def look_alikes(self, number: int, text: str) -> Answer:
        """Returns the pictures that a text fits best, including its own, and how many it fits better than its own."""
        fits, better = self._scorer().fits(self.ids[number], text, LOOK_ALIKES)
        shown = [{"number": self._numbers[id_], "cosine": round(cosine, 4)} for id_, cosine in fits]
        return {"fits": shown, "better": better}

    def collisions(self) -> dict[int, int]:
        """Counts, for each caption, the other pictures that it fits at least as well as its own."""
        texts = {id_: one.text for id_, one in self.store.captions().items()}
        return {self._numbers[id_]: count for id_, count in self._scorer().collisions(texts).items()}

    def _scorer(self) -> FitFinder:
        if self.finder is None:
            raise UsageError("no scorer loaded; start the review with --scorer MODEL")
        return self.finder


def doubts_of(text: str) -> list[str]:
    """Returns the reasons why a person should check a text: a refusal, or an opening such as "The image shows"."""
    if not text:
        return []
    if said := refusal(text):
        return [f"refusal: {said}"]
    opening = next((found for sentence in sentences(text) if (found := without_opening(sentence)[1])), "")
    return [f"opening: {opening}"] if opening else []


def checked_edit(fields: Mapping[str, Any]) -> Edit:
    """Validates the fields and returns the edit to a row. Raises `UsageError` if a field has the wrong type."""
    text = fields.get("text")
    if text is not None and (not isinstance(text, str) or len(text) > LONGEST_TEXT):
        raise UsageError(f"text: expected text of at most {LONGEST_TEXT:,} characters")
    state = {name: fields[name] for name in STATE if name in fields}
    for name, value in state.items():
        if name not in EDITABLE or not isinstance(value, EDITABLE[name]):
            raise UsageError(f"{name}: invalid value {str(value)[:40]!r}")
    return Edit(None if text is None else clean_text(text).strip(), state)
