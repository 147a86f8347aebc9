"""Scripted participants that complete a study through its real HTTP interface.

*Careful* participants answer according to the planted effects and pass control items. *Hasty* participants answer
halfway between careful participants and chance, and fail a few control items. *Random* participants ignore the
captions. All of them receive only what people would see, i.e. captions and pixels, and use it to look up the trial in
the study's folder.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import random
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellapart.errors import TellapartError
from tellapart.study.design import ITEM, Place, Study

CAREFUL, HASTY, RANDOM = "careful", "hasty", "random"
EASY_ERRORS = {CAREFUL: 0.02, HASTY: 0.08}  # fraction of wrong answers to control and practice items
ACCURACY_MEAN, FLUENCY_MEAN, NOISE = 3.9, 4.4, 0.8  # for simulated ratings
TIMEOUT = 60.0  # seconds


class StudyBrowser:
    """A browser with a token and a persistent connection to the server at ``url``, which is on this machine."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT)
        self._origin = url
        self.token = secrets.token_hex(24)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Sends a request and returns the reply's status and content. If the connection was closed, reopens it once."""
        method, data = ("GET", None) if body is None else ("POST", json.dumps(body))
        headers = {"Origin": self._origin, "Content-Type": "application/json", "X-Participant": self.token}
        for last in (False, True):
            try:
                self._connection.request(method, path, data, headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if last:
                    raise TellapartError(f"{self._origin}: no answer ({error or type(error).__name__})") from None
        raise AssertionError

    def json(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request and returns the JSON reply. Raises `TellapartError` if the status is not 200."""
        status, content = self.ask(path, body)
        reply: dict[str, Any] = json.loads(content)
        if status != 200:
            raise TellapartError(f"{path}: {status}: {reply.get('error', '')}")
        return reply

    def look(self, addresses: Iterable[str]) -> list[str]:
        """Fetches pictures and hashes their content. Returns the beginnings of their file names."""
        return [hashlib.sha256(self.ask(address)[1]).hexdigest()[:32] for address in addresses]

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class Script:
    """One scripted participant with a random ability. ``effects``: each system's planted effect, from 0 to 1."""

    def __init__(self, study: Study, effects: Mapping[str, float], character: str, seed: str) -> None:
        self.study, self.effects, self.character = study, effects, character
        self.random = random.Random(seed)
        self.ability = self.random.gauss(0, 0.3)  # in logits
        self._numbers: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
        for number, trial in enumerate(study.trials):
            self._numbers.setdefault(_view(trial.captions, _digests(trial.pictures)), number)

    def take(self, web: StudyBrowser, identifier: str, think: float = 0.0) -> tuple[str, int]:
        """Takes part in the study. Returns how the participation ended and how many answers the server acknowledged.

        think: mean seconds per answer.
        """
        for path in ("/", "/base.css", "/base.js", "/page.css", "/page.js"):
            web.ask(path)
        about = web.json("/api/study")
        web.look(about["example"]["pictures"] if about["example"] else [])
        key = self.study.settings.recruitment.link_key
        begin = {"consent": True, "identifier": identifier, "key": key}
        state, acknowledged = web.json("/api/begin", begin), 0
        while state["phase"] in ("practice", "items"):
            digests = web.look(state["task"]["pictures"])
            if think:
                time.sleep(self.random.expovariate(1 / think) * (1.0 if self.character == CAREFUL else 0.3))
            place = self._place(state["task"]["captions"], digests)
            body = {"position": state["position"], "options": self._answer(place), "revision": state["revision"]}
            state, acknowledged = web.json("/api/answer", body), acknowledged + 1
        if state["phase"] == "review":
            state = web.json("/api/finish", {})
        return state["phase"], acknowledged

    def _place(self, captions: Sequence[str], digests: Sequence[str]) -> Place:
        """Finds the study's trial that the page shows."""
        number = self._numbers[_view(captions, digests)]
        trial = self.study.trials[number]
        slots = map(_digests(trial.pictures).index, digests)
        return self.study.place(number, list(slots), swap=tuple(captions) != trial.captions)

    def _answer(self, place: Place) -> list[int]:
        """Returns this participant's answer, as displayed options."""
        trial = self.study.trials[place.trial]
        easy = trial.role != ITEM
        if self.character == RANDOM or (easy and self.random.random() < EASY_ERRORS[self.character]):
            return [self.random.randrange(len(order)) for order in place.orders]
        if easy:
            options = [self.random.choice(right) if right else 0 for right in trial.expected]
        else:
            options = {"pick": self._pick, "rate": self._rate, "compare": self._compare}[self.study.kind](place)
        return list(place.displayed(options))

    def _strengths(self, place: Place, chance: float) -> list[float]:
        """Returns the effects of the trial's systems, adjusted for this participant's ability."""
        strengths = []
        for system in self.study.trials[place.trial].systems:
            odds = self.effects[system] / (1 - self.effects[system]) * math.exp(self.ability)
            strengths.append(odds / (1 + odds))
        return strengths if self.character == CAREFUL else [(strength + chance) / 2 for strength in strengths]

    def _pick(self, place: Place) -> list[int]:
        (order,) = place.orders
        (strength,) = self._strengths(place, 1 / len(order))
        return [0 if self.random.random() < strength else self.random.choice([slot for slot in order if slot])]

    def _rate(self, place: Place) -> list[int]:
        trial = self.study.trials[place.trial]
        (strength,) = self._strengths(place, 0.5)
        means = (1 + 4 * strength, ACCURACY_MEAN, FLUENCY_MEAN)  # in the order of `ASPECTS`
        item = random.Random(f"{trial.unit} {trial.systems}").gauss(0, 0.4)  # the caption's effect on all raters
        return [min(4, max(0, round(self.random.gauss(mean + item, NOISE)) - 1)) for mean in means]

    def _compare(self, place: Place) -> list[int]:
        first, second = self._strengths(place, 0.5)
        more = 1 if self.random.random() < 0.15 else 0 if self.random.random() < first / (first + second) else 2
        return [more, *self.random.choices(range(4), (0.6, 0.15, 0.15, 0.1))]


def _digests(pictures: Iterable[str]) -> list[str]:
    return [name[:32] for name in pictures]


def _view(captions: Iterable[str], digests: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the captions and pictures on a page, sorted so that the displayed order does not matter."""
    return tuple(sorted(captions)), tuple(sorted(digests))
