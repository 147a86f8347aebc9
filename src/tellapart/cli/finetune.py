"""``tellapart finetune``: trains a captioner on pictures without a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from tellapart.cli.app import TRAINING, App, Command
from tellapart.cli.launch import Nproc, in_processes
from tellapart.cli.options import Device, Json, OptionalCount, Overwrite, RecipePrecision, Settings, precision_settings
from tellapart.cli.run_results import show_run
from tellapart.errors import UsageError

app = App()


def objectives(incomplete: str) -> list[str]:
    """Completes the names of objectives in the shell."""
    from tellapart.recipe.presets import objective_names

    return [name for name in objective_names() if name.startswith(incomplete)]


class FinetuneCommand(Command):
    """A command whose help lists the objectives, including those from installed packages."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See `click.Command.format_help`."""
        from tellapart.recipe.presets import default_objective, objective_names

        for option in self.params:
            if option.name == "objective" and isinstance(option, TyperOption):
                option.help = (
                    f"Objective: {', '.join(objective_names())}. Default: {default_objective(photos=True)} "
                    f"({default_objective(photos=False)} on scenes)."
                )
        super().format_help(ctx, formatter)


@app.command(cls=FinetuneCommand, rich_help_panel=TRAINING)
def finetune(
    model: str,
    pictures: list[str],
    out: Annotated[Path, typer.Option("--out", "-o")],
    objective: Annotated[str | None, typer.Option(autocompletion=objectives)] = None,
    scorer: str | None = None,
    lora: bool = False,
    steps: OptionalCount = None,
    epochs: Annotated[float | None, typer.Option(min=0.01)] = None,
    batch_size: Annotated[int | None, typer.Option(min=2)] = None,
    rate: float | None = None,
    max_tokens: Annotated[int, typer.Option(min=2)] = 30,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    settings: Settings = None,
    overwrite: Overwrite = False,
    push_to_hub: Annotated[str | None, typer.Option(metavar="USER/NAME")] = None,
    private: bool = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    nproc: Nproc = None,
    as_json: Json = False,
) -> None:
    """Train a captioner on your pictures. Interrupted runs resume when you repeat the command.

    Args:
        model: Captioner: folder, run, hub name, or 'scenes'.
        pictures: Folders of pictures, or data sets as kind:path?key=value.
        out: Run folder; the model is written to OUT/model.
        objective: Objective.
        scorer: Scorer: folder, run, or hub name. Default: CLIP ViT-B/32.
        lora: Train LoRA weights, and merge them at the end.
        steps: Number of training steps; a larger number extends an existing run. Default: 300.
        epochs: Number of epochs, instead of --steps.
        batch_size: Batch size in pictures. Default: 50, or all pictures if there are fewer.
        rate: Learning rate. Default: 3e-5, or 3e-4 with --lora.
        max_tokens: Maximum caption length, in tokens.
        seed: Random seed.
        push_to_hub: Hub repository to upload the model and its card to (requires HF_TOKEN or hf auth login).
        private: Make the repository private (requires --push-to-hub).
    """
    from tellapart.models import devices, ranks
    from tellapart.training.finetune import run_finetune
    from tellapart.training.finetune_recipe import plan

    if private and push_to_hub is None:
        raise UsageError("--private requires --push-to-hub USER/NAME; add it, or remove --private")
    with devices.running_on(device):
        in_processes(nproc)
        ranks.start()
        recipe = plan(
            model,
            pictures,
            objective=objective,
            scorer=scorer,
            lora=lora,
            steps=steps,
            epochs=epochs,
            batch_size=batch_size,
            rate=rate,
            max_tokens=max_tokens,
            seed=seed,
            settings=(*(settings or ()), *precision_settings(precision)),
            folder=out,
            overwrite=overwrite,
        )
        run = run_finetune(recipe, out, hub_id=push_to_hub, private=private, overwrite=overwrite)
    if ranks.is_main():
        show_run(run.folder, as_json)
