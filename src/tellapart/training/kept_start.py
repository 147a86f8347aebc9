"""The message of a run that saves its initial model, because no step improved it."""

from __future__ import annotations

from tellapart.recipe.schema import Recipe


def kept_start(recipe: Recipe) -> str:
    """Returns the message that validation selected the initial model."""
    return (
        f"the saved model has the initial weights because no training step improved {recipe.select}; train "
        "longer, change training.learning_rate, or set validation.select"
    )
