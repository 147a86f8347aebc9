"""Runs a study: handles the participants' requests.

A participant's progress is only in the store, so the page can be closed and the server stopped at any time. The page
never receives the names of the systems, targets or files that it shows.
"""

from __future__ import annotations

import contextlib
import hmac
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.study import store as rows
from tellapart.study.block_holders import Blocks
from tellapart.study.databases import StoreError, Transaction
from tellapart.study.design import CONTROL, EXAMPLE, PICTURES, PRACTICE, Place, Study
from tellapart.study.limits import StartLimit
from tellapart.study.picture_addresses import PictureAddresses
from tellapart.study.questions import QUESTIONS
from tellapart.study.seeded_order import shuffled
from tellapart.study.store import COMPLETE, WITHDRAWN, AnswerStore, Participant, StudyAnswer

PAGE_TOKEN = re.compile(r"[0-9a-f]{48}")
NO_CONSENT, EXPIRED, FULL = "no_consent", "expired", "full"


class AnswerConflict(TellapartError):
    """Raised if the page was out of date. ``state`` is the current state."""

    def __init__(self, message: str, state: dict[str, Any]) -> None:
        super().__init__(message)
        self.state = state


class Unknown(TellapartError):
    """Raised if no participant has the token."""


class StudySession:
    """The rules of a running study. Thread-safe.

    A participant's ``token`` is a secret of 48 random hexadecimal digits, which the page chooses.

    clock: returns seconds since 1970.
    proxied: whether the server is behind a proxy.
    """

    def __init__(
        self, study: Study, store: AnswerStore, clock: Callable[[], float] = time.time, *, proxied: bool = False
    ) -> None:
        self.study, self.store, self.clock = study, store, clock
        self.blocks, self.starts = Blocks(study), StartLimit(clock, proxied)
        self.pictures = PictureAddresses(study.folder / PICTURES, store.key)

    # Beginning and ending.

    def public(self) -> dict[str, Any]:
        """Returns everything that the page shows before consent is given: text, questions and the example."""
        study, settings, example = self.study, self.study.settings, None
        for number in study.of_role[EXAMPLE]:
            slots = shuffled(range(len(study.trials[number].pictures)), study.id, EXAMPLE)
            place = study.place(number, slots, swap=False)
            example = {**self._task("example", place), **self._solution(place)}
        return {
            "study": study.id,
            "kind": study.kind,
            "title": settings.title,
            "consent": settings.consent.model_dump(mode="json"),
            "instructions": settings.instructions,
            "questions": [asdict(question) for question in QUESTIONS[study.kind]],
            "items": len(study.blocks[0]) + len(study.of_role[CONTROL]),
            "practice": len(study.of_role[PRACTICE]),
            "example": example,
            "id_parameter": settings.recruitment.id_parameter,
        }

    def begin(self, token: str, identifier: str = "", key: str = "", address: str = "") -> dict[str, Any]:
        """Admits a new participant, or resumes a participation if the token is known. Returns the state of the page.

        Other people may know a participant's identifier, so the identifier never gives access to a session.

        Args:
            identifier: the participant's identifier on the recruitment platform.
            key: the key in the study's link, which a new participant needs.
            address: the participant's network address.

        Raises:
            UsageError: if the key or the token is wrong, or the identifier is invalid or in use with another token.
            TooManyStarts: if too many participants started from the address.
        """
        settings, now = self.study.settings, self.clock()
        if not PAGE_TOKEN.fullmatch(token):
            raise UsageError("token: expected 48 random hexadecimal digits; reload the page")
        if settings.recruitment.require_id and not identifier:
            raise UsageError("this study is only open to participants from a recruitment platform; use its link")
        if identifier and not settings.recruitment.id_pattern.fullmatch(identifier):
            raise UsageError("the identifier in the link is invalid; open the study from the platform again")
        with self.store.transaction() as run:
            one = rows.participant_of(run, token)
            if identifier and one != rows.participant_with(run, identifier):
                raise UsageError(
                    "this identifier is already in use in another browser: continue there, or "
                    "with the address shown there under Leave; if neither is possible, write to "
                    f"{settings.consent.contact}"
                )
            if one is None:
                self._admit(key, address)
                block = self.blocks.free(run, now)
                if block is None:
                    rows.add_refusal(run, now, FULL)
                    return self._end(FULL)
                one = rows.add_participant(run, block, token, now, identifier)
            return self._state(run, one, now)

    def decline(self, key: str = "", address: str = "") -> dict[str, Any]:
        """Counts a person who does not consent. Raises the same errors as `begin`."""
        with self.store.transaction() as run:
            self._admit(key, address)
            rows.add_refusal(run, self.clock(), "no consent")
        return self._end(NO_CONSENT)

    def _admit(self, key: str, address: str) -> None:
        """Checks the key in the link, and counts a start from the address."""
        recruitment = self.study.settings.recruitment
        if recruitment.link_key and not hmac.compare_digest(
            key.encode("utf-8", "replace"), recruitment.link_key.encode()
        ):
            raise UsageError("the study's key is missing from the link; use the complete link that you received")
        self.starts.count(address, recruitment.starts_per_address)

    def withdraw(self, token: str) -> dict[str, Any]:
        """Deletes the answers of a participant who withdraws."""
        with self._participation(token) as (run, one, _):
            rows.withdraw(run, one)
        with contextlib.suppress(StoreError):  # the answers are deleted, and the next compaction overwrites the data
            self.store.database.compact()
        return self._end(WITHDRAWN)

    def finish(self, token: str) -> dict[str, Any]:
        """Marks a participant as finished if all items are answered. Repeating the request has no effect."""
        with self._participation(token) as (run, one, now):
            if not self._ended(run, one, now) and one.answered == len(self.blocks.places(one)):
                one = rows.update(run, one, status=COMPLETE)
            return self._state(run, one, now)

    def _end(self, how: str) -> dict[str, Any]:
        """Returns the page's final state, including the code for the platform."""
        recruitment = self.study.settings.recruitment
        codes = {COMPLETE: recruitment.completed, EXPIRED: recruitment.screened_out, FULL: recruitment.screened_out}
        code = codes.get(how, recruitment.no_consent)
        address = recruitment.return_url + code if recruitment.return_url and code else ""
        return {"phase": how, "code": code, "return_url": address}

    # Answering items.

    def state(self, token: str) -> dict[str, Any]:
        """Returns the current state of a participant's page. Raises `Unknown` if the token is unknown."""
        with self._participation(token) as (run, one, now):
            return self._state(run, one, now)

    def back(self, token: str) -> dict[str, Any]:
        """Returns the previous item with its answer, so that the answer can be changed."""
        with self._participation(token) as (run, one, now):
            state = self._state(run, one, now)
            if not state.get("can_go_back"):
                raise AnswerConflict("there is no earlier item", state)
            position = one.answered - 1
            rows.update(run, one, shown=position)
            return self._item_state(one, position, rows.answer_at(run, one, position))

    def answer(self, token: str, position: int, options: Sequence[int], revision: int) -> dict[str, Any]:
        """Saves an answer and returns the next state, with feedback for practice items. A repeated request saves its
        answer only once.

        options: the displayed options.
        revision: revision of the answer that the page showed, or 0 if it showed no answer.

        Raises `AnswerConflict` unless the position is the next one or, for items, the previous one.
        """
        with self._participation(token) as (run, one, now):
            if end := self._ended(run, one, now):
                raise AnswerConflict("this participation has ended", end)
            places = self.blocks.places(one)
            if not 0 <= position < len(places):
                raise UsageError(f"no item {position}")
            place = places[position]
            try:
                chosen = place.canonical(options)
            except ValueError:
                counts = ", ".join(str(len(order)) for order in place.orders)
                raise UsageError(f"options: expected one integer for each question, below {counts}") from None
            practice = position < len(self.study.of_role[PRACTICE])
            valid = rows.answer_at(run, one, position)
            repeated = valid is not None and valid.options == chosen
            corrected = valid is not None and valid.revision == revision and position == one.answered - 1
            is_next = valid is None and position == one.answered
            if not (is_next or repeated or (corrected and not practice)):
                raise AnswerConflict("this item was answered in another window", self._state(run, one, now))
            if not repeated:
                seconds = max(0.0, now - one.seen) if one.shown == position else None
                number = valid.revision + 1 if valid else 1
                rows.write_answer(run, StudyAnswer(one.number, position, number, place.trial, chosen, now, seconds))
            answered = max(one.answered, position + 1)
            one = rows.update(run, one, answered=answered, seen=now, shown=answered)
            state = self._item_state(one, answered, None)
            if practice:
                right = self.study.trials[place.trial].passes(chosen)
                state |= {"feedback": {"right": right, **self._solution(place)}}
            return state

    @contextlib.contextmanager
    def _participation(self, token: str) -> Iterator[tuple[Transaction, Participant, float]]:
        """Opens a transaction and yields it with the participant who has this token and the current time. Raises
        `Unknown` if nobody has the token.
        """
        with self.store.transaction() as run:
            one = rows.participant_of(run, token)
            if one is None:
                raise Unknown("unknown participation; open the link of the study again")
            yield run, one, self.clock()

    def _ended(self, run: Transaction, one: Participant, now: float) -> dict[str, Any] | None:
        """Returns the final state of a participation that has ended, or None if it continues."""
        if one.status == WITHDRAWN:
            return self._end(WITHDRAWN)
        if self.blocks.is_final(one, now):
            return self._end(COMPLETE)
        return self._end(EXPIRED) if self.blocks.is_lost(run, one, now) else None

    def _state(self, run: Transaction, one: Participant, now: float) -> dict[str, Any]:
        """Returns the state of the page for the next item, and records that the item is shown now."""
        if end := self._ended(run, one, now):
            return end
        one = rows.update(run, one, seen=now, shown=one.answered)
        return self._item_state(one, one.answered, None)

    def _item_state(self, one: Participant, position: int, answer: StudyAnswer | None) -> dict[str, Any]:
        places = self.blocks.places(one)
        practice = len(self.study.of_role[PRACTICE])
        state = {
            "position": position,
            "total": len(places) - practice,
            "practice": practice,
            "can_go_back": answer is None and one.answered > practice,
        }
        if position == len(places):
            return {**state, "phase": "review"}
        task, *following = (self._task(str(one.number), place) for place in places[position : position + 2])
        return {
            **state,
            "phase": "practice" if position < practice else "items",
            "task": task,
            "answer": list(places[position].displayed(answer.options)) if answer else None,
            "revision": answer.revision if answer else 0,
            "prefetch": [address for ahead in following for address in ahead["pictures"]],
        }

    def _task(self, owner: str, place: Place) -> dict[str, Any]:
        addresses = [self.pictures.address(owner, place.trial, name) for name in place.pictures]
        return {"captions": place.captions, "pictures": addresses}

    def _solution(self, place: Place) -> dict[str, Any]:
        """Returns the correct displayed options for each question, and the explanation. The options are empty if every
        option is correct.
        """
        trial = self.study.trials[place.trial]
        marks = [
            [order.index(option) for option in options or ()]
            for order, options in zip(place.orders, trial.expected, strict=True)
        ]
        return {"marks": marks, "text": trial.feedback}
