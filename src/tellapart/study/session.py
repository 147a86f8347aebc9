"""A running study: handles the requests of its participants.

Only the store holds a participant's progress, so the page can be closed and the server stopped at any time. The page
never learns which systems, targets or files it shows.
"""

from __future__ import annotations

import contextlib
import hmac
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.study import store as rows
from tellapart.study.blocks import Blocks
from tellapart.study.databases import StoreError, Transaction
from tellapart.study.design import CONTROL, EXAMPLE, PICTURES, PRACTICE, Place, Study, option_counts, questions
from tellapart.study.exclusion import control_errors
from tellapart.study.picture_addresses import PictureAddresses
from tellapart.study.store import ACTIVE, COMPLETE, SCREENED, WITHDRAWN, AnswerStore, Participant, StudyAnswer

LONGEST_TOKEN = 200  # characters
PAGE_TOKEN = re.compile(r"[0-9a-f]{48}")


class AnswerConflict(TellapartError):
    """Another window answered first; ``state`` is the current state."""

    def __init__(self, message: str, state: dict[str, Any]) -> None:
        super().__init__(message)
        self.state = state


class Full(TellapartError):
    """No block is left."""


class Unknown(TellapartError):
    """No participant has this token."""


class StudySession:
    """The rules of a running study. Thread-safe. clock: returns seconds since 1970."""

    def __init__(self, study: Study, store: AnswerStore, clock: Callable[[], float] = time.time) -> None:
        self.study, self.store, self.clock = study, store, clock
        self.blocks = Blocks(study)
        self._pictures = PictureAddresses(study.folder / PICTURES, store.key)
        with store.transaction() as run:
            self.blocks.apply_rule(run)

    # What the page shows.

    def public(self) -> dict[str, Any]:
        """Returns everything that is shown before consent is given: texts, questions and the example."""
        study, settings = self.study, self.study.settings
        examples = [self._example(number) for number in study.of_role[EXAMPLE]]
        return {
            "study": study.id,
            "kind": study.kind,
            "title": settings.title,
            "consent": settings.consent.model_dump(mode="json"),
            "instructions": settings.instructions,
            "questions": [
                {"name": q.name, "text": q.text, "help": q.help, "options": q.options} for q in questions(study.kind)
            ],
            "items": len(study.blocks[0]) + len(study.of_role[CONTROL]),
            "practice": len(study.of_role[PRACTICE]),
            "example": examples[0] if examples else None,
            "id_parameter": settings.recruitment.id_parameter,
        }

    def _example(self, number: int) -> dict[str, Any]:
        trial = self.study.trials[number]
        slots = tuple(range(1, len(trial.pictures))) if self.study.kind == "pick" else ()
        place = Place(number, (*slots[: len(slots) // 2], 0, *slots[len(slots) // 2 :]) if slots else ())
        marks = [list(m) for m in self._expected(place)]
        return {**self._task("example", place), "feedback": trial.feedback, "marks": marks}

    def _expected(self, place: Place) -> list[Sequence[int]]:
        """Returns the correct displayed options for each question; empty if every option is correct."""
        found: list[Sequence[int]] = []
        for question, options in enumerate(self.study.trials[place.trial].expected):
            base = [0] * len(self.study.trials[place.trial].expected)
            shown = []
            for option in options or ():
                base[question] = option
                shown.append(self.study.shown_options(place, base)[question])
            found.append(shown)
        return found

    def _task(self, owner: str, place: Place) -> dict[str, Any]:
        trial = self.study.trials[place.trial]
        names = [trial.pictures[slot] for slot in place.slots] or list(trial.pictures)
        captions = trial.captions[::-1] if place.flip else trial.captions
        return {"captions": captions, "pictures": [self._pictures.address(owner, place.trial, name) for name in names]}

    def picture(self, address: str) -> tuple[bytes, str] | None:
        """Returns the bytes and media type of the picture at an address that was given to a page; None for other
        addresses.
        """
        return self._pictures.read(address)

    # Beginning and ending.

    def begin(
        self,
        identifier: str,
        study: str,
        session: str,
        token: str = "",
        key: str = "",
        may_start: Callable[[], None] = lambda: None,
    ) -> tuple[str, dict[str, Any]]:
        """Admits a new participant, or resumes if the token is known. Returns the participant's token and state.

        Other people can know a platform's identifier, so the identifier never gives access to a participant's session.

        Args:
            token: the page's secret, 48 random hexadecimal digits. It identifies a repeated request after a lost reply.
            key: the key in the study's link, required to begin.
            may_start: called before a new participant starts; raises `TooManyStarts` if there are too many.

        Raises:
            UsageError: the key is wrong, the identifier is invalid, or the identifier is in use with another token.
            Full: no block is left.
        """
        recruitment = self.study.settings.recruitment
        if recruitment.require_id and not identifier:
            raise UsageError("this study is only open to participants from a recruitment platform; use its link")
        if identifier and not re.fullmatch(recruitment.id_pattern, identifier):
            raise UsageError("the identifier in the link is invalid; open the study from the platform again")
        now, own = self.clock(), token if PAGE_TOKEN.fullmatch(token) else ""
        with self.store.transaction() as run:
            owner = rows.participant_of(run, token[:LONGEST_TOKEN]) if token else None
            known = rows.participant_with(run, identifier) if identifier else owner
            owner = owner if owner and known and owner.number == known.number else None
            if known is not None and owner is None:
                raise UsageError(
                    "this identifier is already in use in another browser: continue there, or "
                    "with the address shown there under Leave; if neither is possible, write to "
                    f"{self.study.settings.consent.contact}"
                )
            if known is None:
                self._check_key(key)
                may_start()
                block = self.blocks.free(run, now)
                if block is None:
                    rows.add_refusal(run, now, "full")
                else:
                    ordinal = run("SELECT count(*) FROM participants WHERE block = ?", (block,))[0][0]
                    known = rows.add_participant(run, block, ordinal, now)
                    if identifier:
                        run("INSERT INTO identities VALUES (?, ?, ?, ?)",
                            (known.number, identifier, study[:100], session[:100]))  # fmt: skip
            if known is not None:
                return token if owner else rows.new_token(run, known.number, own), self._state(run, known, now)
        raise Full("the study already has enough participants")

    def _check_key(self, key: str) -> None:
        expected = self.study.settings.recruitment.link_key
        if expected and not hmac.compare_digest(key.encode("utf-8", "replace"), expected.encode()):
            raise UsageError("the study's key is missing from the link; use the complete link that you received")

    def decline(self, key: str = "", may_start: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Counts a person who does not consent. Raises `UsageError` for a wrong key."""
        self._check_key(key)
        may_start()
        with self.store.transaction() as run:
            rows.add_refusal(run, self.clock(), "no consent")
        return self._end("no_consent")

    def withdraw(self, token: str) -> dict[str, Any]:
        """Deletes the answers of a participant who withdraws."""
        with self.store.transaction() as run:
            one = self._participant(run, token)
            rows.withdraw(run, one.number)
        with contextlib.suppress(StoreError):  # already deleted; the next compaction overwrites the data
            self.store.compact()
        return self._end(WITHDRAWN)

    def finish(self, token: str) -> dict[str, Any]:
        """Marks a participant as finished if all items are answered. Repeating the request changes nothing."""
        now = self.clock()
        with self.store.transaction() as run:
            one = self._participant(run, token)
            if self.blocks.answered_all(one):
                one = self.blocks.complete(run, one, now)
            return self._state(run, one, now)

    def _end(self, how: str) -> dict[str, Any]:
        """Returns the page's final state, including the code for the platform."""
        recruitment = self.study.settings.recruitment
        codes = {
            COMPLETE: recruitment.completed,
            "no_consent": recruitment.no_consent,
            WITHDRAWN: recruitment.no_consent,
        }
        code = codes.get(how, recruitment.screened_out)
        address = recruitment.return_url + code if recruitment.return_url and code else ""
        return {"phase": how, "code": code, "return_url": address}

    def full(self) -> dict[str, Any]:
        """Returns the state that the page shows if no block is left."""
        return self._end("full")

    # One item after another.

    def state(self, token: str) -> dict[str, Any]:
        """Returns the current state of a participant's page. Raises `Unknown`."""
        now = self.clock()
        with self.store.transaction() as run:
            return self._state(run, self._participant(run, token), now)

    def back(self, token: str) -> dict[str, Any]:
        """Returns the previous item with its answer, so that it can be changed."""
        now = self.clock()
        with self.store.transaction() as run:
            one = self._participant(run, token)
            state = self._state(run, one, now)
            position = one.answered - 1
            if not state.get("can_go_back"):
                raise AnswerConflict("there is no earlier item", state)
            rows.update(run, one, shown=position, shown_at=now, seen=now)
            return self._item_state(one, position, rows.standing_answer(run, one.number, position))

    def answer(self, token: str, position: int, options: Sequence[int], revision: int) -> dict[str, Any]:
        """Saves an answer and returns the next state, with feedback for practice items. A repeated request saves its
        answer only once.

        options: the displayed options.
        revision: revision of the answer that the page showed, 0 if it showed none.
        Raises `AnswerConflict` unless the position is the next one or, for items, the previous one.
        """
        now = self.clock()
        with self.store.transaction() as run:
            one = self._participant(run, token)
            state = self._state(run, one, now, touch=False)
            if state["phase"] not in ("practice", "items", "review"):
                raise AnswerConflict("this participation has ended", state)
            places = self.blocks.places(one)
            if not 0 <= position < len(places):
                raise UsageError(f"no item {position}")
            place = places[position]
            chosen = self._checked(place, options)
            standing = rows.standing_answer(run, one.number, position)
            practice = self.study.trials[place.trial].role == PRACTICE
            if standing is None and position != one.answered:
                raise AnswerConflict("this item is not the next one", self._state(run, one, now))
            changed = standing is not None and standing.options != chosen
            seen = standing is not None and revision == standing.revision and position == one.answered - 1
            if changed and (practice or not seen):
                raise AnswerConflict("this item was answered in another window", self._state(run, one, now))
            if standing is None or changed:
                seconds = max(0.0, now - one.shown_at) if one.shown == position else None
                number = standing.revision + 1 if standing else 1
                rows.write_answer(run, StudyAnswer(one.number, position, number, place.trial, chosen, now, seconds))
            one = self._advance(run, one, position, now)
            state = self._state(run, one, now)
            return {**state, "feedback": self._feedback(place, chosen)} if practice else state

    def _checked(self, place: Place, options: Sequence[int]) -> tuple[int, ...]:
        """Converts displayed to canonical options. Raises `UsageError` for options that were not offered."""
        counts = option_counts(self.study.kind, len(self.study.trials[place.trial].pictures))
        if len(options) != len(counts) or not all(
            isinstance(option, int) and not isinstance(option, bool) and 0 <= option < count
            for option, count in zip(options, counts, strict=False)
        ):
            raise UsageError(f"options: expected {len(counts)} integers below {', '.join(map(str, counts))}")
        return self.study.canonical_options(place, options)

    def _advance(self, run: Transaction, one: Participant, position: int, now: float) -> Participant:
        one = rows.update(run, one, answered=max(one.answered, position + 1), seen=now)
        if self.study.settings.sampling.screen_out_early:
            # The latest answer can still be changed, so only earlier ones count.
            settled = [answer for answer in rows.standing_answers(run, one.number) if answer.position < position]
            errors = control_errors(self.study, settled)
            if errors > self.study.settings.exclusion.max_control_errors:
                return rows.update(run, one, status=SCREENED, excluded=f"{errors} control items wrong", finished=now)
        return one

    def _feedback(self, place: Place, chosen: Sequence[int]) -> dict[str, Any]:
        trial = self.study.trials[place.trial]
        return {
            "right": trial.passes(chosen),
            "text": trial.feedback,
            "marks": [list(m) for m in self._expected(place)],
        }

    def _state(self, run: Transaction, one: Participant, now: float, *, touch: bool = True) -> dict[str, Any]:
        """Returns the state of the page for the next item. ``touch``: whether to record the item as shown."""
        one = self.blocks.expire(run, one, now)
        if one.status != ACTIVE:
            return self._end(one.status)
        if touch:
            one = rows.update(run, one, shown=one.answered, shown_at=now, seen=now)
        return self._item_state(one, one.answered, None)

    def _item_state(self, one: Participant, position: int, answer: StudyAnswer | None) -> dict[str, Any]:
        places = self.blocks.places(one)
        practice = len(self.study.of_role[PRACTICE])
        shown = {
            "position": position,
            "total": len(places) - practice,
            "practice": practice,
            "can_go_back": answer is None and one.answered > practice,
        }
        if position == len(places):
            return {**shown, "phase": "review"}
        place = places[position]
        ahead = places[position + 1 : position + 2]
        return {
            **shown,
            "phase": "practice" if position < practice else "items",
            "task": self._task(str(one.number), place),
            "answer": None if answer is None else list(self.study.shown_options(place, answer.options)),
            "revision": 0 if answer is None else answer.revision,
            "prefetch": [url for one_ahead in ahead for url in self._task(str(one.number), one_ahead)["pictures"]],
        }

    @staticmethod
    def _participant(run: Transaction, token: str) -> Participant:
        one = rows.participant_of(run, token[:LONGEST_TOKEN]) if token else None
        if one is None:
            raise Unknown("unknown participation; open the link of the study again")
        return one
