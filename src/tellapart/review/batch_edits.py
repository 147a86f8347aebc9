"""Edits of many captions at once: replace a text, prepend a trigger, add or remove a tag, accept."""

from __future__ import annotations

import re
from collections.abc import Callable

from tellapart.captions.store import Edit, StoredCaption
from tellapart.errors import UsageError


def replacing(find: str, replacement: str, *, case: bool, whole_words: bool) -> Callable[[StoredCaption], Edit | None]:
    """Returns the edit that replaces every occurrence of a text. Raises `UsageError` if ``find`` is empty."""
    if not find:
        raise UsageError("find: enter the text to find")
    pattern = re.escape(find)
    if whole_words:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    found = re.compile(pattern, 0 if case else re.IGNORECASE)

    def edit(caption: StoredCaption) -> Edit | None:
        new = found.sub(lambda _: replacement, caption.text).strip()
        return Edit(new) if new != caption.text else None

    return edit


def prepending(trigger: str) -> Callable[[StoredCaption], Edit | None]:
    """Returns the edit that prepends a trigger to captions that do not begin with it."""
    trigger = trigger.strip().rstrip(",")
    if not trigger:
        raise UsageError("trigger: enter the word to put first")
    begins = re.compile(rf"{re.escape(trigger)}(?!\w)", re.IGNORECASE)

    def edit(caption: StoredCaption) -> Edit | None:
        if caption.decorative or begins.match(caption.text):
            return None
        return Edit(f"{trigger}, {caption.text}" if caption.text else trigger)

    return edit


def tagging(tag: str, *, remove: bool) -> Callable[[StoredCaption], Edit | None]:
    """Returns the edit that appends a tag to captions that lack it, or removes it from all captions."""
    tag = tag.strip().strip(",")
    if not tag:
        raise UsageError("tag: enter a tag")

    def edit(caption: StoredCaption) -> Edit | None:
        tags = [part.strip() for part in caption.text.split(",")]
        has = tag.lower() in (each.lower() for each in tags)
        if remove == has:
            rest = [each for each in tags if each.lower() != tag.lower()] if remove else [*filter(None, tags), tag]
            return Edit(", ".join(rest))
        return None

    return edit


def stating(name: str, value: bool) -> Callable[[StoredCaption], Edit | None]:
    """Returns the edit that accepts captions, or revokes their acceptance."""
    if name != "accepted":
        raise UsageError(f"{name}: cannot be changed for many captions at once")
    return lambda caption: Edit(state={name: value}) if caption.accepted != value and caption.text else None
