"""Per-picture values of an evaluation, as CSV or JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.evaluation.formats import csv_text
from tellapart.metrics.results import Results
from tellapart.utils.strict_json import json_text, json_value


def per_caption(results: Results, path: Path) -> str:
    """Formats one record per system and picture: ``id``, ``system``, ``caption`` (``captions`` if there are several),
    and the value of each per-picture metric. Writes CSV if ``path`` ends in .csv, otherwise JSON Lines.
    """
    lists = results.extra.get("caption_lists", {})
    records = [
        {
            "id": id_,
            "system": name,
            **({"captions": lists[name][row]} if name in lists else {"caption": captions[row]}),
            **{metric: json_value(value_N[row]) for metric, value_N in results.values.get(name, {}).items()},
        }
        for name, captions in results.captions.items()
        for row, id_ in enumerate(results.ids)
    ]
    if path.suffix.lower() == ".csv":
        heads = list(dict.fromkeys(key for record in records for key in record))
        return csv_text(heads, ([_cell(record.get(head)) for head in heads] for record in records))
    return "".join(json_text(record) + "\n" for record in records)


def _cell(value: Any) -> Any:
    return "" if value is None else json_text(value) if isinstance(value, list) else value
