"""Exports the answers of a study as anonymous JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tellapart.study.analysis import Person, people_of
from tellapart.study.design import ITEM, MORE, PRACTICE, WRONG, Study, questions
from tellapart.study.store import COMPLETE, AnswerStore, moment
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.strict_json import json_value

JSON_FILE, CSV_FILE, PEOPLE_FILE = "answers.json", "answers.csv", "identifiers.csv"
_MORE = ("first", "same", "second")
_WRONG = ("neither", "first", "second", "both")


def export(study: Study, store: AnswerStore, out: Path, *, with_ids: bool = False) -> dict[str, Any]:
    """Writes ``answers.json`` (design and all answers) and ``answers.csv`` (one row per answer) to ``out``.

    Participants are named P1, P2, …, and times are relative to their start. with_ids: also write ``identifiers.csv``,
    which maps participants to the platform's identifiers for payment. Never publish it.
    """
    for name in (JSON_FILE, CSV_FILE, *([PEOPLE_FILE] if with_ids else [])):
        check_output(out / name)
    people = people_of(study, store)
    status = {one.name: one for one in people}
    rows = _rows(study, store, status)
    document = {
        "kind": study.kind,
        "title": study.settings.title,
        "systems": study.systems,
        "stamp": study.stamp,
        "stamps": [{"at": moment(at), "stamp": stamp, "reason": why} for at, stamp, why in store.stamps()],
        "exclusion": study.settings.exclusion.model_dump(),
        "participants": [asdict(one) for one in people],
        "not_taking_part": store.refusals(),
        "answers": rows,
    }
    write_output(out / JSON_FILE, json.dumps(json_value(document), ensure_ascii=False, indent=1) + "\n")
    write_output(out / CSV_FILE, _csv(rows))
    if with_ids:
        identities = store.identities()
        known = [
            {"participant": f"P{number}", "identifier": own[0], "study": own[1], "session": own[2],
             "status": status[f"P{number}"].status, "excluded": status[f"P{number}"].excluded}
            for number, own in identities.items()
            if f"P{number}" in status  # omits people who have begun in the meantime
        ]  # fmt: skip
        write_output(out / PEOPLE_FILE, _csv(known))
    return {"folder": str(out), "answers": len(rows), "participants": len({row["participant"] for row in rows}),
            "identifiers": with_ids}  # fmt: skip


def _rows(study: Study, store: AnswerStore, people: Mapping[str, Person]) -> list[dict[str, Any]]:
    participants = {one.number: one for one in store.participants()}
    found = []
    for answer in store.answers():
        one, trial = participants[answer.participant], study.trials[answer.trial]
        if trial.role == PRACTICE:
            continue
        name = f"P{one.number}"
        place = study.order(one.block, one.ordinal, one.seed)[answer.position]
        shown = study.shown_options(place, answer.options)
        row: dict[str, Any] = {
            "participant": name,
            "counted": name in people and people[name].status == COMPLETE and not people[name].excluded,
            "block": one.block,
            "position": answer.position,
            "role": trial.role,
            "item": trial.unit,
            "system": " / ".join(trial.systems),
            "caption": " / ".join(trial.captions),
            "passed": trial.passes(answer.options) if trial.role != ITEM else None,
            "seconds": None if answer.seconds is None else round(answer.seconds, 2),
            "minute": round((answer.at - one.started) / 60, 2),
            "changed": answer.revision - 1,
        }
        if study.kind == "pick":
            row |= {"correct": answer.options[0] == 0, "place": shown[0] + 1,
                    "picked": trial.pictures[answer.options[0]], "target": trial.pictures[0]}  # fmt: skip
        elif study.kind == "rate":
            row |= {q.name: option + 1 for q, option in zip(questions("rate"), answer.options, strict=True)}
        else:
            row |= {MORE: _MORE[answer.options[0]], WRONG: _WRONG[answer.options[1]], "order_changed": place.flip}
        found.append(row)
    return found


def _csv(rows: list[dict[str, Any]]) -> str:
    """Formats rows as CSV; prefixes texts that a spreadsheet would interpret as formulas with an apostrophe."""
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
