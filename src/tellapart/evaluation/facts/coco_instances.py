"""COCO's instances: each picture's objects, by its id or file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from tellapart.errors import UsageError
from tellapart.language.synonyms import Synonyms
from tellapart.types import Item
from tellapart.utils.strict_json import parse_json


def read_instances(path: Path, synonyms: Synonyms) -> dict[str, frozenset[str]]:
    """Reads each picture's objects, by id and file name, from COCO's ``instances_*.json``. Raises `UsageError`."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        names = {category["id"]: synonyms.canonical(category["name"]) for category in value["categories"]}
        found: dict[int, set[str]] = {}
        for annotation in value["annotations"]:
            found.setdefault(annotation["image_id"], set()).add(names[annotation["category_id"]])
        files = {image["id"]: image.get("file_name", "") for image in value.get("images", ())}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected COCO's instances_*.json") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a COCO instances file ({type(error).__name__}: {error})") from None
    by_name: dict[str, frozenset[str]] = {}
    for number in {**files, **found}:  # a picture without annotations has no objects
        file = Path(files.get(number, ""))
        for name in filter(None, (str(number), str(file) if file.name else "", file.name, file.stem)):
            by_name[name] = frozenset(found.get(number, ()))
    return by_name


def names_in(instances: Mapping[str, frozenset[str]], ids: Sequence[str], items: Sequence[Item] | None) -> list[str]:
    """Returns the name under which COCO's instances list each picture: its id, or its file's path, name or stem. The
    name is "" if the picture is not listed.
    """
    files = [""] * len(ids) if items is None else [item.picture.name for item in items]
    names = []
    for id_, file in zip(ids, files, strict=True):
        ways = (way for name in (id_, file) for way in (name, PurePath(name).name, PurePath(name).stem))
        names.append(next((way for way in ways if way and way in instances), ""))
    return names
