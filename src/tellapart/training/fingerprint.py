"""The fingerprint of a run: a hash of everything that the run's result depends on.

Two recipes have the same fingerprint if their settings, initial weights, training data and code versions agree,
regardless of machine and folder:

- ``training.precision = "auto"`` is replaced with the precision that it resolves to on this machine;
- defaults are omitted, so that a new key does not change existing fingerprints;
- a recipe that is used as a model is replaced with its own fingerprint, a local model with a digest of its files, and a
  model on the hub with its name;
- data is replaced with its specification (without paths), plus a digest of all ids, splits, references and sizes of
  picture files (hashing the pictures themselves would take as long as encoding them);
- each part of the code that the recipe uses is listed with its version (`tellapart.utils.versions`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.data.open import open_data
from tellapart.data.pictures import StoredPicture
from tellapart.data.specification import parse
from tellapart.errors import PictureError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.models.devices import best_device
from tellapart.models.names import BUILTIN
from tellapart.models.precision import resolve_precision
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe, Training
from tellapart.training.sources import spec_list
from tellapart.types import Item
from tellapart.utils.differing_keys import differing
from tellapart.utils.listed_names import few
from tellapart.utils.recipe_names import Resolver
from tellapart.utils.versions import VERSIONS

WITHOUT_EFFECT = ("name", "about")  # recipe keys that do not affect results, such as training.trackers
# Files in a model's folder that affect its output: weights, configuration, tokenizer, templates.
DECIDING = frozenset((".safetensors", ".json", ".txt", ".model", ".jinja", ".pt", ".pth", ".bin", ".py"))
IDF_KEYWORDS = ("references", "training", "batch")  # values of ``idf`` that are not files


@dataclass(frozen=True)
class RunContent:
    """Everything that determines a run's result, as JSON: the canonical ``recipe`` and the versions of the ``code``."""

    document: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Returns the fingerprint: eight hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()[:8]

    def differences(self, other: Mapping[str, Any], without: Collection[str] = ()) -> str:
        """Describes how another run's content differs from this one, e.g. ``training.steps 1000, now 10``.

        Ignores the keys in ``without``.
        """
        theirs, ours = (dict(flat(document)) for document in (other, self.document))
        keys = [key for key in differing(theirs, ours) if key.removeprefix("recipe.") not in without]
        some = [f"{key.removeprefix('recipe.')} {shown(theirs, key)}, now {shown(ours, key)}" for key in keys]
        return few(some, separator="; ")


def shown(table: Mapping[str, Any], key: str) -> str:
    return json.dumps(table[key], ensure_ascii=False) if key in table else "not set"


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted key, value) for every value that is not a table."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else name)
    else:
        yield key, value


def content_of(recipe: Recipe, identities: Identities | None = None) -> RunContent:
    """Computes the content of a run: opens the recipe's data and hashes its local models (`FeatureStore.digest`).

    Raises `UsageError` if data or recipes that the recipe names are missing, or if recipes use each other as models.
    """
    table = canonical(recipe, identities or Identities())
    return RunContent({"recipe": table, "code": {part: VERSIONS[part] for part in code_of(recipe)}})


def canonical(recipe: Recipe, identities: Resolver | None = None) -> dict[str, Any]:
    """Returns the recipe as JSON, without defaults, and with names replaced by their ``identities``."""
    table = recipe.dump(identities, mode="json", exclude_defaults=True)
    for key in WITHOUT_EFFECT:
        table.pop(key, None)
    for key in ("trackers", "sharding"):  # these settings do not affect the result
        table["training"].pop(key, None)
    if recipe.captioner is not None and recipe.captioner.features == "off":  # caching does not affect the result
        del table["captioner"]["features"]
    for test in table.get("evaluation", {}).get("test_sets", {}).values():
        test.pop("needs", None)  # used only in the message for a missing file
    if recipe.training.precision == "auto":  # record the precision used on this machine
        table["training"]["precision"] = resolve_precision("auto", best_device())
        if table["training"]["precision"] == Training.model_fields["precision"].default:
            del table["training"]["precision"]
    if recipe.validation.select is None and recipe.select in ("loss", "cider"):
        table.setdefault("validation", {})["select"] = recipe.select  # derived from the rewards, which may be plug-ins
    table.setdefault("objective", {})["kind"] = recipe.objective.kind  # kept even if it is the default of its class
    return table


def code_of(recipe: Recipe) -> list[str]:
    """Returns the parts of the code that this recipe uses."""
    parts = ["samplers", "loop", *({recipe.objective.kind} & VERSIONS.keys())]  # a plug-in's objective has no version
    tests = (on.data for on in recipe.evaluation.test_sets.values())
    data = (recipe.data.train, recipe.data.validation, recipe.data.test or (), *tests)
    specs = [spec for each in data for spec in spec_list(each)]
    synthetic = [spec.startswith("scenes:") for spec in specs]
    if any(synthetic):
        parts.append("scenes")
    if recipe.trains == "captioner":
        parts.append("decoding")
        if recipe.select not in ("step", "loss") and not all(synthetic):  # checkpoints are selected by their captions
            parts.append("unknown_words")
        if recipe.captioner is not None and (recipe.captioner.name or "").partition("?")[0].endswith(".pt"):
            parts.append("stop_tokens")
    learns = recipe.captioner.train if recipe.captioner else None
    if recipe.trains == "scorer" or "vision" in (learns or ()):
        parts.append("pixels")
    if recipe.bags is not None and recipe.bags.hard is not None:
        parts.append("distractors")
    return sorted(parts)


class Identities:
    """Resolves models, data and files to their identities in a fingerprint (a `utils.recipe_names.Resolver`).

    memo: cache of identities. Share it only as long as no file changes.
    chain: the recipes that led to the current one, each of which uses the next one as a model.
    """

    def __init__(self, memo: dict[tuple[str, str], str] | None = None, chain: tuple[str, ...] = ()) -> None:
        self.memo, self.chain = {} if memo is None else memo, chain

    def model(self, name: str) -> str:
        """Returns a recipe's fingerprint, a local model's digest, or (for all other models) the name itself."""
        if name in self.chain:
            names = " → ".join(Path(path).name for path in (*self.chain[self.chain.index(name) :], name))
            raise UsageError(f"recipes use each other as models: {names}; set another model in one of these recipes")
        if ("model", name) not in self.memo:
            self.memo["model", name] = self._of_recipe(name) if name.endswith(".toml") else self._of_model(name)
        return self.memo["model", name]

    def data(self, spec: str) -> str:
        """Returns the specification without paths, plus a digest of the items."""
        if ("data", spec) not in self.memo:
            self.memo["data", spec] = data_identity(spec)
        return self.memo["data", spec]

    def file(self, path: str) -> str:
        """Returns the digest of a file or, for a folder, the digest of its files' names and sizes.

        Returns all other strings unchanged.
        """
        where = Path(path).expanduser()
        if path in IDF_KEYWORDS or not where.exists():
            return path
        if where.is_file():
            return f"file:{FeatureStore().digest(where)}"
        files = sorted((file.relative_to(where).as_posix(), file.stat().st_size) for file in where.rglob("*"))
        return f"folder:{hashlib.blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()}"

    def _of_recipe(self, name: str) -> str:
        child = Identities(self.memo, (*self.chain, name))
        return f"recipe:{content_of(read_recipe(Path(name)), child).fingerprint}"

    def _of_model(self, name: str) -> str:
        bare, mark, options = name.partition("?")
        if bare == "clipcap":  # built from other models, which are named in its options
            pairs = [pair.partition("=") for pair in options.split("&")]
            named = (f"{key}{equals}{self.model(value) if value else ''}" for key, equals, value in pairs)
            return bare + mark + "&".join(named)
        return (model_identity(bare) if bare else "") + mark + options


def model_identity(name: str) -> str:
    """Returns ``weights:DIGEST`` for a folder, run, file or ``scenes``, or else the name (hub id or dotted path)."""
    where = BUILTIN if name == "scenes" else Path(name).expanduser()
    if where.is_file():
        return f"weights:{FeatureStore().digest(where)}"
    if (where / "run.json").is_file():
        where = where / "model"
    files = [file for file in where.glob("*/*" if name == "scenes" else "*") if file.suffix in DECIDING]
    if not files:
        return name
    store, digest = FeatureStore(), hashlib.blake2b(digest_size=16)
    for file in sorted(files):
        if file.is_file():
            digest.update(f"{file.relative_to(where).as_posix()} {store.digest(file)}\n".encode())
    return f"weights:{digest.hexdigest()}"


def data_identity(spec: str) -> str:
    """Returns ``kind?options#N-DIGEST`` or, for `scenes`, the domain and the options, which determine the data."""
    kind, path, options = parse(spec)
    pairs = sorted((key, value) for key, value in options.values.items() if key != "images")
    written = "&".join(f"{key}={value}" for key, value in pairs)
    if kind == "scenes":
        return f"scenes:{path}?{written}"
    digest, items = hashlib.blake2b(digest_size=16), open_data(spec)
    for item in items:
        digest.update(json.dumps([item.id, item.split, item.references, picture_identity(item)]).encode() + b"\n")
    return f"{kind}?{written}#{len(items)}-{digest.hexdigest()}"


def picture_identity(item: Item) -> int | str:
    """Returns the size of the picture's file or, if the picture is not a file, the key of its content."""
    try:
        return item.picture.signature()[0] if isinstance(item.picture, StoredPicture) else item.picture.key()
    except PictureError:
        return "unreadable"
