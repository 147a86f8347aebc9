"""Makes one short text from a caption, for people who cannot see the picture."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tellapart.boost.answer_checks import unusable
from tellapart.purposes.edited import Edited
from tellapart.purposes.shortening import shortened, without_openings

CHARACTERS = 125  # a common recommendation, because screen readers read this much without a pause

# In German, "Das Bild zeigt einen braunen Hund" leaves an object, which becomes the subject "Ein brauner Hund".
_ACCUSATIVE = re.compile(r"^(Einen|Den) ((?:[a-zäöüß]+en )*)(?=[A-ZÄÖÜ])")


def _nominative(match: re.Match[str]) -> str:
    article, ending = ("Ein", "er ") if match[1] == "Einen" else ("Der", "e ")
    return f"{article} {match[2].replace('en ', ending)}"


def alt_texts(
    captions: Mapping[str, str], characters: int = CHARACTERS, *, long: bool = False, language: str = ""
) -> dict[str, Edited]:
    """Returns the alt text made from each caption, with the doubts that a person should check.

    characters: maximum length of a text, in characters.
    long: whether to also keep the whole caption if it was shortened.
    language: the code of the captions' language; "" means English without a language tag.
    """
    return {key: _alt_text(caption, characters, long, language) for key, caption in captions.items()}


def _alt_text(caption: str, characters: int, long: bool, language: str) -> Edited:
    if why := unusable(caption):
        return Edited("", (("no text", why),))
    whole, opening = without_openings(caption)
    if opening and language.lower().partition("-")[0] == "de":
        whole = _ACCUSATIVE.sub(_nominative, whole)
    doubts = [("opening", f"removed “{opening}”")] if opening else []
    english = language.lower().partition("-")[0] in ("", "en")
    text, cut = shortened(whole, characters, english=english)
    if cut in ("phrase", "word"):
        doubts.append(("shortened", f"cut after a {cut}; the rest was “{whole[len(text) :].strip()}”"))
    return Edited(text, tuple(doubts), whole if long and text != whole else "", language=language)
