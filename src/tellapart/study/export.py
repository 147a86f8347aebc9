"""Exports a study's answers as anonymous JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tellapart.study.design import ITEM, PRACTICE, SWAPPED, Study
from tellapart.study.participation import Participation, participations
from tellapart.study.questions import ASPECTS, MORE, WRONG
from tellapart.study.store import AnswerStore, StudyAnswer
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.strict_json import json_value

JSON_FILE, CSV_FILE, PEOPLE_FILE = "answers.json", "answers.csv", "identifiers.csv"
_MORE = ("first", "same", "second")
_WRONG = ("neither", "first", "second", "both")


def export(study: Study, store: AnswerStore, out: Path, *, with_ids: bool = False) -> dict[str, Any]:
    """Writes ``answers.json`` (the design and all answers) and ``answers.csv`` (one row per answer) to ``out``.

    Participants are named P1, P2, …, and times are relative to the participant's start.

    with_ids: whether to also write ``identifiers.csv``, which maps participants to the platform's identifiers, so that
    they can be paid. Never publish this file.
    """
    for name in (JSON_FILE, CSV_FILE, *([PEOPLE_FILE] if with_ids else [])):
        check_output(out / name)
    identities, everybody = store.identities(), participations(study, store)
    answers = [
        _row(study, one, answer)
        for one in everybody
        for answer in one.answers
        if study.trials[answer.trial].role != PRACTICE
    ]
    document = {
        "kind": study.kind,
        "title": study.settings.title,
        "systems": study.systems,
        "stamp": study.stamp,
        "stamps": store.stamps(),
        "exclusion": study.settings.exclusion.model_dump(),
        "participants": [asdict(one.person) for one in everybody],
        "not_taking_part": store.refusals(),
        "answers": answers,
    }
    write_output(out / JSON_FILE, json.dumps(json_value(document), ensure_ascii=False, indent=1) + "\n")
    write_output(out / CSV_FILE, _csv(answers))
    if with_ids:
        people = {one.participant.number: one.person for one in everybody}
        rows = [
            {"participant": people[number].name, "identifier": identifier, "status": people[number].status,
             "excluded": people[number].excluded}
            for number, identifier in identities.items()
        ]  # fmt: skip
        write_output(out / PEOPLE_FILE, _csv(rows))
    names = {row["participant"] for row in answers}
    return {"folder": str(out), "answers": len(answers), "participants": len(names), "identifiers": with_ids}


def _row(study: Study, one: Participation, answer: StudyAnswer) -> dict[str, Any]:
    """Returns the part of an answer that is published."""
    trial, place, options = study.trials[answer.trial], one.places[answer.position], answer.options
    row = {
        "participant": one.person.name,
        "counted": one.person.counted,
        "block": one.participant.block,
        "position": answer.position,
        "role": trial.role,
        "item": trial.unit,
        "system": " / ".join(trial.systems),
        "caption": " / ".join(trial.captions),
        "passed": trial.passes(options) if trial.role != ITEM else None,
        "seconds": None if answer.seconds is None else round(answer.seconds, 2),
        "minute": round((answer.at - one.participant.started) / 60, 2),
        "changed": answer.revision - 1,
    }
    if study.kind == "pick":
        (picked,), (shown,) = options, place.displayed(options)
        return row | {"correct": picked == 0, "place": shown + 1, "picked": trial.pictures[picked],
                      "target": trial.pictures[0]}  # fmt: skip
    if study.kind == "rate":
        return row | {aspect: option + 1 for aspect, option in zip(ASPECTS, options, strict=True)}
    more, wrong = options
    return row | {MORE: _MORE[more], WRONG: _WRONG[wrong], "order_changed": place.orders == SWAPPED}


def _csv(rows: list[dict[str, Any]]) -> str:
    """Formats rows as CSV. Adds an apostrophe before text that a spreadsheet would interpret as a formula."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
