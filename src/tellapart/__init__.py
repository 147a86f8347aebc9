"""tellapart: fine-tune image captioners to describe what sets an image apart, and measure whether they do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tellapart.captioners import Captioner, load_captioner
    from tellapart.data import open_data
    from tellapart.evaluation.evaluate import evaluate
    from tellapart.models.decoding import Decoding
    from tellapart.scorers import Scorer, load_scorer
    from tellapart.types import Item

__version__ = "0.2.0"

_MODULES = {
    "Captioner": "captioners",
    "Decoding": "models.decoding",
    "Item": "types",
    "Scorer": "scorers",
    "evaluate": "evaluation.evaluate",
    "load_captioner": "captioners",
    "load_scorer": "scorers",
    "open_data": "data",
}

__all__ = [
    "Captioner",
    "Decoding",
    "Item",
    "Scorer",
    "__version__",
    "evaluate",
    "load_captioner",
    "load_scorer",
    "open_data",
]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that ``import tellapart`` loads neither torch nor transformers."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tellapart' has no attribute {name!r}")
    return getattr(import_module(f"tellapart.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
