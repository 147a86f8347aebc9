"""Validates a BLIP whose patches have their real size, 577 of 768 numbers; prints the bytes held beyond the models.

What is mapped from files (weights, kept pixels) is not counted: the system takes it back when it needs the room.

python tests/training/validation_run.py PICTURES SCORER PARTS
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from pathlib import Path

from transformers import BertTokenizer, BlipConfig, BlipForConditionalGeneration, BlipImageProcessorPil

sys.path.append(str(Path(__file__).parents[1]))

from tiny_blip import SPECIAL

from tellapart.recipe.reading import check_recipe
from tellapart.scenes import Scenes
from tellapart.training.build import TrainingSetup
from tellapart.training.runs import upstream
from tellapart.training.validation import Validator

SIZES = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}


def save_blip(folder: Path) -> None:
    """BLIP base but for the depth of its vision, of which the states of one layer are held at a time without gradients,
    and with half the text layers."""
    texts = [text for scene in Scenes(60) for text in scene.references]
    words = [*SPECIAL, *sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})]
    (folder / "vocab.txt").write_text("\n".join(words))
    text = {
        **SIZES, "num_hidden_layers": 6, "vocab_size": len(words), "max_position_embeddings": 64, "pad_token_id": 0,
        "encoder_hidden_size": 768, "bos_token_id": 5, "sep_token_id": 3, "eos_token_id": 3,
    }  # fmt: skip
    vision = {**SIZES, "num_hidden_layers": 1, "image_size": 384, "patch_size": 16}
    BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision)).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    BlipImageProcessorPil(size={"height": 384, "width": 384}).save_pretrained(folder)


class Peak(threading.Thread):
    """Looks every few milliseconds how many bytes this process holds that are of no file."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.most = self.now()
        self.over = threading.Event()

    @staticmethod
    def now() -> int:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return 1024 * int(found[1])

    def run(self) -> None:
        while not self.over.wait(0.005):
            self.most = max(self.most, self.now())


def main(pictures: int, scorer: str, train: list[str], blip: Path) -> None:
    """Prints the peak of a whole validation, beyond what is held before it."""
    save_blip(blip)
    recipe = {
        "name": "memory",
        "data": {"train": "scenes:plain?n=4&split=train", "validation": f"scenes:plain?n={pictures}&split=validation"},
        "captioner": {"name": str(blip), "train": train},
        "scorer": {"name": scorer},
        "objective": {"kind": "mle"},
        "training": {"steps": 1, "batch_size": 4, "learning_rate": 1e-4},
        "validation": {"decoding": {"kind": "beam", "beams": 3, "max_tokens": 1}},
    }
    setup = TrainingSetup(check_recipe(recipe, "test"), upstream)
    assert setup.scorer is not None and len(setup.validation_items) == pictures
    peak = Peak()
    peak.start()
    Validator(setup).run()
    peak.over.set()
    print(peak.most - peak.before)


with tempfile.TemporaryDirectory() as scratch:
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), Path(scratch))
