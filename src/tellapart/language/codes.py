"""Reads language codes (BCP 47), such as de or pt-BR."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tellapart.errors import UsageError

_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
_CASE = {2: str.upper, 4: str.title}  # by length: regions and scripts, as in sr-Latn-RS


def language_code(code: str, examples: Iterable[str] = ("de", "pt-BR")) -> str:
    """Returns a code as it is usually written: ``EN`` as ``en``, and ``de_at`` as ``de-AT``.

    Raises `UsageError` if it is not a code; the message lists ``examples``.
    """
    if not _CODE.fullmatch(code):
        *most, last = examples
        raise UsageError(f"--language {code}: expected a language code such as {', '.join(most)} or {last}")
    language, *others = code.lower().replace("_", "-").split("-")
    return "-".join([language, *(_CASE.get(len(other), str.lower)(other) for other in others)])
