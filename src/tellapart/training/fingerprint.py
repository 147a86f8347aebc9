"""The fingerprint of a run: a hash of everything that its result depends on, wherever it lies.

Two recipes have one fingerprint where they say the same, start from the same weights and learn from the same data with
the same versions of the code, on whatever machine and in whatever folder:

- ``training.precision = "auto"`` stands for the precision that it is here;
- defaults are left out, so that a new key changes nothing;
- a recipe named as a model stands for its own fingerprint, a local model for a digest of its files, a model of the
  hub for its name;
- data stand for their specification without paths and for a digest of what it leads to: ids, splits, references, and
  the sizes of the picture files (to read all pictures would take as long as to encode them);
- each part of the code that the recipe uses stands there with its version (`tellapart.utils.versions`).
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
from tellapart.models.devices import best_device, resolve_precision
from tellapart.models.names import BUILTIN
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe, Training
from tellapart.types import Item
from tellapart.utils.options import Resolver
from tellapart.utils.versions import VERSIONS

WITHOUT_EFFECT = ("name", "about")  # keys of a recipe that no result follows from; nor from training.trackers
# Files of a model's folder that decide what it does: weights, configuration, tokenizer, templates.
DECIDING = frozenset((".safetensors", ".json", ".txt", ".model", ".jinja", ".pt", ".pth", ".bin", ".py"))
WORDS = ("references", "training", "batch")  # what may stand where a file may, and is none
SHOWN = 3  # differences that a message names


@dataclass(frozen=True)
class RunContent:
    """All that decides a run's result, as plain JSON: ``recipe`` (canonical) and ``code`` (part to version)."""

    document: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Eight hex digits."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()[:8]

    def differences(self, other: Mapping[str, Any], without: Collection[str] = ()) -> str:
        """Returns how another document differs from this one, such as ``training.steps 1000, now 10``; not in
        ``without``."""
        theirs, ours = (dict(flat(document)) for document in (other, self.document))
        keys = [key for key in sorted(theirs.keys() | ours.keys()) if theirs.get(key) != ours.get(key)]
        keys = [key for key in keys if key.removeprefix("recipe.") not in without]
        some = [f"{key.removeprefix('recipe.')} {shown(theirs, key)}, now {shown(ours, key)}" for key in keys[:SHOWN]]
        return "; ".join(some) + (f"; and {len(keys) - SHOWN} more" if len(keys) > SHOWN else "")


def shown(table: Mapping[str, Any], key: str) -> str:
    return json.dumps(table[key], ensure_ascii=False) if key in table else "left out"


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted key, value) of all that is no table."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else name)
    else:
        yield key, value


def content_of(recipe: Recipe, identities: Identities | None = None) -> RunContent:
    """Returns what this recipe's result follows from: opens its data, hashes its local models (`FeatureStore.digest`).

    Raises `UsageError` where data or recipes that it names are not there, and where recipes name each other.
    """
    table = canonical(recipe, identities or Identities())
    return RunContent({"recipe": table, "code": {part: VERSIONS[part] for part in code_of(recipe)}})


def canonical(recipe: Recipe, identities: Resolver | None = None) -> dict[str, Any]:
    """Returns the recipe as plain JSON without defaults, with ``identities`` in place of what it names."""
    table = recipe.dump(identities, mode="json", exclude_defaults=True)
    for key in WITHOUT_EFFECT:
        table.pop(key, None)
    for key in ("trackers", "sharding"):  # where weights lie decides no number either
        table["training"].pop(key, None)
    if recipe.captioner is not None and recipe.captioner.features == "off":  # where features lie decides no number
        del table["captioner"]["features"]
    for test in table.get("evaluation", {}).get("test_sets", {}).values():
        test.pop("needs", None)  # what is said where a file is missing
    if recipe.training.precision == "auto":  # the one that this machine computes in
        table["training"]["precision"] = resolve_precision("auto", best_device())
        if table["training"]["precision"] == Training.model_fields["precision"].default:
            del table["training"]["precision"]
    if recipe.validation.select is None and recipe.select in ("loss", "cider"):
        table.setdefault("validation", {})["select"] = recipe.select  # follows from the rewards, which may be plug-ins
    table.setdefault("objective", {})["kind"] = recipe.objective.kind  # kept, although it is its class's default
    return table


def code_of(recipe: Recipe) -> list[str]:
    """Returns the parts of the code that this recipe's result goes through."""
    parts = ["samplers", "loop", *({recipe.objective.kind} & VERSIONS.keys())]  # a plug-in's objective has no number
    tests = (on.data for on in recipe.evaluation.test_sets.values())
    data = (recipe.data.train, recipe.data.validation, recipe.data.test or (), *tests)
    specs = [spec for each in data for spec in ([each] if isinstance(each, str) else each)]
    synthetic = [spec.startswith("scenes:") for spec in specs]
    if any(synthetic):
        parts.append("scenes")
    if recipe.trains == "captioner":
        parts.append("decoding")
        if recipe.select not in ("step", "loss") and not all(synthetic):  # captions choose the weights
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
    """Returns the identity of a model, of data and of a file in a fingerprint (a `utils.options.Resolver`).

    ``known``: names whose identity the caller knows (a run that is yet to be trained). ``memo``: what was found so
    far; to be shared for as long as no file changes. ``chain``: the recipes that led here.
    """

    def __init__(
        self,
        known: Mapping[str, str] | None = None,
        memo: dict[tuple[str, str], str] | None = None,
        chain: tuple[str, ...] = (),
    ) -> None:
        self.known, self.memo, self.chain = known or {}, {} if memo is None else memo, chain

    def model(self, name: str) -> str:
        """Returns a recipe's fingerprint, the digest of a local model, or the name of one that is not here."""
        if name in self.known:
            return self.known[name]
        if name in self.chain:
            names = " → ".join(Path(path).name for path in (*self.chain[self.chain.index(name) :], name))
            raise UsageError(
                f"recipes name each other: {names}; each needs the other's model first; name another model"
            )
        if ("model", name) not in self.memo:
            self.memo["model", name] = self._of_recipe(name) if name.endswith(".toml") else self._of_model(name)
        return self.memo["model", name]

    def data(self, spec: str) -> str:
        """Returns the specification without paths, and a digest of the items."""
        if spec in self.known:
            return self.known[spec]
        if ("data", spec) not in self.memo:
            self.memo["data", spec] = data_identity(spec)
        return self.memo["data", spec]

    def file(self, path: str) -> str:
        """Returns the digest of a file, or of the names and sizes of a folder's files; what is no path stays as it
        is."""
        where = Path(path).expanduser()
        if path in WORDS or not where.exists():
            return path
        if where.is_file():
            return f"file:{FeatureStore().digest(where)}"
        files = sorted((file.relative_to(where).as_posix(), file.stat().st_size) for file in where.rglob("*"))
        return f"folder:{hashlib.blake2b(json.dumps(files).encode(), digest_size=16).hexdigest()}"

    def _of_recipe(self, name: str) -> str:
        child = Identities(self.known, self.memo, (*self.chain, name))
        return f"recipe:{content_of(read_recipe(Path(name)), child).fingerprint}"

    def _of_model(self, name: str) -> str:
        bare, mark, options = name.partition("?")
        if bare == "clipcap":  # made of others, which its options name
            pairs = [pair.partition("=") for pair in options.split("&")]
            named = (f"{key}{equals}{self.model(value) if value else ''}" for key, equals, value in pairs)
            return bare + mark + "&".join(named)
        return (model_identity(bare) if bare else "") + mark + options


def model_identity(name: str) -> str:
    """Returns ``weights:DIGEST`` for a folder, a run, a file or ``scenes``; else the name (of the hub, or a dotted
    path)."""
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
    """Returns ``kind?options#N-DIGEST``; of `scenes` domain and options alone, for nothing else decides them."""
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
    """Returns the size of the file that the picture lies in; of what is in no file the key of its content."""
    try:
        return item.picture.signature()[0] if isinstance(item.picture, StoredPicture) else item.picture.key()
    except PictureError:
        return "unreadable"
