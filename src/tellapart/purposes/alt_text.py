"""Alt text: one short text per picture for people who cannot see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tellapart.boost.answer_checks import unusable
from tellapart.purposes.texts import Edited, shortened, without_openings

CHARACTERS = 125  # a common recommendation, because screen readers read this much without a pause

# German: "Das Bild zeigt einen braunen Hund" leaves an object, which becomes the subject "Ein brauner Hund".
_ACCUSATIVE = re.compile(r"^(Einen|Den) ((?:[a-zäöüß]+en )*)(?=[A-ZÄÖÜ])")


def _nominative(match: re.Match[str]) -> str:
    article, ending = ("Ein", "er ") if match[1] == "Einen" else ("Der", "e ")
    return f"{article} {match[2].replace('en ', ending)}"


@dataclass(frozen=True)
class AltText:
    """Makes one text of at most ``characters`` per picture. ``long``: also keep the whole caption if it was shortened.

    ``language``: the code of the captions' language; "" means English without a language tag.
    """

    characters: int = CHARACTERS
    long: bool = False
    language: str = ""

    def edited(self, captions: Mapping[str, str]) -> dict[str, Edited]:
        """Returns the alt text made from each caption, with the doubts that a person should check."""
        return {key: self._edited(caption) for key, caption in captions.items()}

    def _edited(self, caption: str) -> Edited:
        if why := unusable(caption):
            return Edited("", (("no text", why),))
        whole, opening = without_openings(caption)
        if opening and self.language.lower().partition("-")[0] == "de":
            whole = _ACCUSATIVE.sub(_nominative, whole)
        doubts = [("opening", f"removed “{opening}”")] if opening else []
        english = self.language.lower().partition("-")[0] in ("", "en")
        text, cut = shortened(whole, self.characters, english=english)
        if cut in ("phrase", "word"):
            doubts.append(("shortened", f"cut after a {cut}; the rest was “{whole[len(text) :].strip()}”"))
        return Edited(text, tuple(doubts), whole if self.long and text != whole else "", language=self.language)
