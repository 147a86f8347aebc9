"""Alt text: one short text of a picture for people who do not see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tellapart.boost.stages import unusable
from tellapart.purposes.texts import Edited, shortened, without_openings

CHARACTERS = 125  # of an alt text: what screen readers say in one go, by common advice


@dataclass(frozen=True)
class AltText:
    """One short text of a picture, of at most ``characters``; ``long`` keeps the whole caption where it says more.

    ``language``: the code of the captions' language, "" for English that is not said to be.
    """

    characters: int = CHARACTERS
    long: bool = False
    language: str = ""

    def edited(self, captions: Mapping[str, str]) -> dict[str, Edited]:
        """Returns the alt text of each caption, with what a person should look at."""
        return {key: self._edited(caption) for key, caption in captions.items()}

    def _edited(self, caption: str) -> Edited:
        if why := unusable(caption):
            return Edited("", (("no text", why),))
        whole, opening = without_openings(caption)
        doubts = [("opening", f"“{opening}” was left out")] if opening else []
        english = self.language.lower().partition("-")[0] in ("", "en")
        text, cut = shortened(whole, self.characters, english=english)
        if cut in ("phrase", "word"):
            doubts.append(("shortened", f"after a {cut}, before “{whole[len(text) :].strip()}”"))
        return Edited(text, tuple(doubts), whole if self.long and text != whole else "", language=self.language)
