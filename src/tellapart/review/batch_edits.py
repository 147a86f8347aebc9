"""Edits of many captions at once: replace a text, prepend a trigger, add or remove a tag, accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tellapart.captions.store import Edit, StoredCaption
from tellapart.errors import UsageError

BatchEdit = Callable[[StoredCaption], Edit | None]  # returns None to leave a caption unchanged


def batch_edit(what: str, body: Mapping[str, Any]) -> BatchEdit:
    """Returns the edit that a batch request asks for. Raises `UsageError` if the request is invalid."""
    text = str(body.get("text") or "")
    if what == "replace":
        return _replacing(text, str(body.get("by") or ""), bool(body.get("case")), bool(body.get("whole_words")))
    if what == "trigger":
        return _prepending(text.strip().rstrip(","))
    if what in ("add tag", "remove tag"):
        return _tagging(text.strip().strip(","), remove=what == "remove tag")
    if what in ("accept", "do not accept"):
        accepted = what == "accept"
        return lambda caption: (
            Edit(state={"accepted": accepted}) if caption.accepted != accepted and caption.text else None
        )
    raise UsageError(f"what: expected replace, trigger, add tag, remove tag or accept, got {what[:40]!r}")


def _replacing(find: str, replacement: str, case: bool, whole_words: bool) -> BatchEdit:
    if not find:
        raise UsageError("find: enter the text to find")
    pattern = rf"(?<!\w){re.escape(find)}(?!\w)" if whole_words else re.escape(find)
    found = re.compile(pattern, 0 if case else re.IGNORECASE)

    def edit(caption: StoredCaption) -> Edit | None:
        new = found.sub(lambda _: replacement, caption.text).strip()
        return Edit(new) if new != caption.text else None

    return edit


def _prepending(trigger: str) -> BatchEdit:
    if not trigger:
        raise UsageError("trigger: enter the word to put first")
    begins = re.compile(rf"{re.escape(trigger)}(?!\w)", re.IGNORECASE)

    def edit(caption: StoredCaption) -> Edit | None:
        if caption.decorative or begins.match(caption.text):
            return None
        return Edit(f"{trigger}, {caption.text}" if caption.text else trigger)

    return edit


def _tagging(tag: str, remove: bool) -> BatchEdit:
    if not tag:
        raise UsageError("tag: enter a tag")

    def edit(caption: StoredCaption) -> Edit | None:
        tags = [part.strip() for part in caption.text.split(",")]
        rest = [each for each in tags if each.lower() != tag.lower()]
        if remove:
            return Edit(", ".join(rest)) if rest != tags else None
        return Edit(", ".join([*filter(None, tags), tag])) if rest == tags else None

    return edit
