"""A miniature of the papers' data and models, in the layouts in which their authors distribute them.

Pictures are scenes of 32 pixels. Models are tiny ones of the real classes, in folders that are called as on the hub, so
that a command typed in the folder finds them under the published names.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image
from tiny_blip import save_blip, write_blip
from transformers import BertTokenizer

from tellapart.scenes import Scenes

sys.path.append(str(Path(__file__).parent / "captioners"))

import families

POOL = 105  # pictures of a test set: P@1 takes a hundred
TRAINING = 44
CLIPS = 12
COCO_VAL, COCO_TEST = range(100, 124), range(1000, 1000 + POOL)  # COCO's numbers
DOCS = Path(__file__).parent.parent / "docs" / "howto" / "own-captioner.md"


class World:
    """Writes everything below ``folder``: ``data`` is $TELLAPART_DATA, the models lie beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        scenes = Scenes(POOL * 2 + TRAINING, split="test", seed=3)
        self.scenes = [scenes[i] for i in range(len(scenes))]
        self.texts = [text for scene in self.scenes for text in scene.references]
        self.words = sorted({word for text in self.texts for word in re.findall(r"[\w']+", text.lower())})

    def write(self) -> None:
        self.write_models()
        self.write_coco()
        self.write_flickr30k()
        self.write_boosted()
        self.write_sets()
        self.write_web()
        self.write_clips()
        self.write_text()

    def picture(self, path: Path, number: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.scenes[number % len(self.scenes)].image().resize((48, 32)).save(path)

    def references(self, number: int) -> list[str]:
        return list(self.scenes[number % len(self.scenes)].references)

    # --- pictures

    def karpathy(self, numbers: dict[str, range], name: str, filepath: bool) -> dict[str, Any]:
        images, sentence = [], 0
        for split, ids in numbers.items():
            for id in ids:
                own = []
                for text in self.references(id):
                    own.append({"raw": text, "tokens": text.split(), "imgid": len(images), "sentid": sentence})
                    sentence += 1
                folder = "train2014" if split in ("train", "restval") else "val2014"
                file = f"COCO_{folder}_{id:012}.jpg" if filepath else f"{id}.jpg"
                images.append(
                    {
                        "filename": file, "imgid": len(images), "split": split, "sentences": own,
                        "sentids": [each["sentid"] for each in own],
                        **({"filepath": folder, "cocoid": id} if filepath else {}),
                    }
                )  # fmt: skip
        return {"dataset": name, "images": images}

    def write_coco(self) -> None:
        folder = self.data / "coco"
        numbers = {"train": range(0, TRAINING - 4), "restval": range(40, 44), "val": COCO_VAL, "test": COCO_TEST}
        document = self.karpathy(numbers, "coco", filepath=True)
        for image in document["images"]:
            self.picture(folder / image["filepath"] / image["filename"], image["cocoid"])
        (folder / "dataset_coco.json").write_text(json.dumps(document))
        for image in document["images"]:
            image["sentences"] = image["sentences"][:1]
        (folder / "dataset_coco_one.json").write_text(json.dumps(document))
        for name, words in (("simplest", 2), ("simpler", 3)):
            rows = [
                {"id": str(image["cocoid"]), "image": f"{image['filepath']}/{image['filename']}",
                 "split": image["split"], "references": [" ".join(image["sentences"][0]["tokens"][:words])]}
                for image in document["images"]
            ]  # fmt: skip
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(text)  # as `tellapart data simplify` writes them
        draw = np.random.default_rng(0)
        with h5py.File(folder / "bottomup.h5", "w") as file:
            for image in document["images"]:
                file[str(image["cocoid"])] = draw.standard_normal((3, 8), dtype=np.float32)
        pool = self.data / "capenrich"
        pool.mkdir(parents=True)
        (pool / "imgids.json").write_text(json.dumps([*COCO_TEST, *COCO_VAL]))

    def write_flickr30k(self) -> None:
        folder = self.data / "flickr30k"
        numbers = {"train": range(0, TRAINING), "val": range(2000, 2000 + POOL), "test": range(3000, 3000 + POOL)}
        document = self.karpathy(numbers, "flickr30k", filepath=False)
        for image in document["images"]:
            self.picture(folder / "flickr30k-images" / image["filename"], int(image["filename"][:-4]) + 7)
        (folder / "dataset_flickr30k.json").write_text(json.dumps(document))
        (self.data / "capenrich" / "imgids_flickr30k.json").write_text(
            json.dumps([f"{number}.jpg" for number in range(2090, 2105)])
        )

    def write_boosted(self) -> None:
        """HolisticCap and BlendCap as ``tellapart boost`` writes them, beside COCO's pictures."""
        for kind in ("holistic", "blend"):
            (self.data / kind).mkdir()
            for split, folder, ids in (
                ("train", "train2014", range(0, TRAINING)),
                ("validation", "val2014", COCO_VAL),
                ("test", "val2014", COCO_TEST),
            ):
                rows = [
                    {
                        "id": str(id), "image": f"../coco/{folder}/COCO_{folder}_{id:012}.jpg",
                        "captions": [f"{text} and more" for text in self.references(id)],
                    }
                    for id in ids
                ]  # fmt: skip
                text = "".join(json.dumps(row) + "\n" for row in rows)
                (self.data / kind / f"{split}.jsonl").write_text(text)

    def write_sets(self) -> None:
        """TrueMatch, bags of COCO's numbers from validation and test, and ImageCoDe, sets of ten frames."""
        (self.data / "truematch").mkdir()
        numbers = [number for pair in zip(COCO_TEST, [*COCO_VAL, *COCO_TEST[60:]], strict=False) for number in pair]
        numbers = list(dict.fromkeys(numbers))[:70]
        assert {*numbers} & {*COCO_VAL} and {*numbers} & {*COCO_TEST}
        for size in (1, 3, 5, 7):
            bags = [numbers[at : at + size] for at in range(0, len(numbers) - size + 1, size)]
            (self.data / "truematch" / f"{size}.json").write_text(json.dumps(bags))
        folder, found = self.data / "imagecode", {}
        for number in range(6):
            name = f"MSR-VTT-videoTrainValVideo_video{number}"
            found[name] = {str(k): self.references(number * 10 + k)[0] for k in (1, 4)}
            for k in range(10):
                self.picture(folder / "image-sets" / name / f"img{k}.jpg", number * 10 + k)
        (folder / "valid_data.json").write_text(json.dumps(found))

    def write_web(self) -> None:
        """Conceptual Captions, nocaps and Concadia."""
        folder = self.data / "conceptual"
        for name, part, count, first in (
            ("Train_GCC-training.tsv", "training", TRAINING, 0),
            ("Validation_GCC-1.1.0-Validation.tsv", "validation", POOL, 50),
        ):
            folder.mkdir(exist_ok=True)
            rows = []
            for number in range(first, first + count):
                self.picture(folder / part / f"photo{number}.jpg", number)
                rows.append(f"{self.references(number)[0]}\thttps://a.example/photo{number}.jpg\n")
            (folder / name).write_text("".join(rows))
        images, captions = [], []
        for number in range(2 * POOL):
            self.picture(self.data / "nocaps" / "validation" / f"{number:016x}.jpg", number)
            domain = "near-domain" if number < POOL else "out-domain"
            file = f"{number:016x}.jpg"
            images.append({"id": number, "file_name": file, "domain": domain, "open_images_id": file[:-4]})
            for text in self.references(number) * 2:
                captions.append({"image_id": number, "id": len(captions), "caption": text})
        file = self.data / "nocaps" / "nocaps_val_4500_captions.json"
        file.write_text(json.dumps({"info": {}, "images": images, "annotations": captions}))
        rows = []
        for number in range(POOL):
            self.picture(self.data / "concadia" / "resized" / f"{number}.jpg", number)
            caption, description = self.references(number)[:2]
            raw = {"caption": {"raw": caption}, "description": {"raw": description}}
            rows.append({"filename": f"{number}.jpg", "split": "test", **raw})
        (self.data / "concadia" / "wiki_split.json").write_text(json.dumps({"images": rows}))

    def write_clips(self) -> None:
        """MSR-VTT's official files, and TGIF with its lists of splits; clips are GIFs, which either reader takes."""
        clips = Scenes(3 * CLIPS, split="test", seed=4, frames=4)

        def clip(path: Path, number: int) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            first, *others = (frame.resize((32, 32)) for frame in clips[number].frames(4))
            first.save(path, save_all=True, append_images=others, duration=100)

        folder = self.data / "msrvtt"
        for name, place, splits in (
            ("train_val_videodatainfo.json", "TrainValVideo", {"train": range(0, 24), "validate": range(24, 30)}),
            ("test_videodatainfo.json", "TestVideo", {"test": range(30, 36)}),
        ):
            videos, sentences = [], []
            for split, numbers in splits.items():
                for number in numbers:
                    write_video(folder / place / f"video{number}.mp4", clips[number].frames(4))
                    videos.append({"video_id": f"video{number}", "split": split, "category": 1})
                    for text in list(clips[number].references) * 4:
                        sentences.append({"caption": text, "video_id": f"video{number}", "sen_id": len(sentences)})
            (folder / name).write_text(json.dumps({"info": {}, "videos": videos, "sentences": sentences}))
        folder = self.data / "tgif"
        rows, splits = [], {"train": range(0, 24), "val": range(24, 30), "test": range(30, 36)}
        (folder / "splits").mkdir(parents=True)
        for split, numbers in splits.items():
            urls = []
            for number in numbers:
                clip(folder / "gifs" / f"tumblr_{number}.gif", number)
                urls.append(f"https://38.media.tumblr.com/a{number}/tumblr_{number}.gif")
                rows.append(f"{urls[-1]}\t{clips[number].references[0]}\n")
            (folder / "splits" / f"{split}.txt").write_text("\n".join(urls) + "\n")
        (folder / "tgif-v1.0.tsv").write_text("".join(rows))

    def write_text(self) -> None:
        """Alpaca's instructions and Vicuna's questions."""
        told = [{"instruction": f"say {word}", "input": "", "output": f"{word} it is"} for word in self.words[:40]]
        for name in ("alpaca", "vicuna"):
            (self.data / name).mkdir()
        (self.data / "alpaca" / "alpaca_data.json").write_text(json.dumps(told))
        kinds = ["generic", "knowledge", "roleplay", "common-sense", "fermi", "counterfactual", "writing", "math"]
        asked = list(enumerate(zip(kinds, told, strict=False), start=1))
        for name, rows in (
            ("question", [{"question_id": n, "text": e["instruction"], "category": kind} for n, (kind, e) in asked]),
            ("answer_gpt35", [{"question_id": n, "text": e["output"], "answer_id": f"a{n}"} for n, (_, e) in asked]),
        ):
            (self.data / "vicuna" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    # --- models

    def write_models(self) -> None:
        from transformers import (
            CLIPConfig,
            CLIPImageProcessorPil,
            CLIPModel,
            ConvNextImageProcessorPil,
            GPT2Config,
            GPT2LMHeadModel,
            LlamaConfig,
            LlamaForCausalLM,
            ResNetConfig,
            ResNetModel,
        )

        from tellapart.models.word_tokenizer import word_tokenizer

        torch.manual_seed(0)
        small: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 2}
        # "." is a token, as it is GPT-2's.
        tokenizer = word_tokenizer([*self.texts, ". ".join(self.texts[:2])], sentences=True)
        ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        clip = self.folder / "openai" / "clip-vit-base-patch32"
        text = {**small, **heads, **ends, "vocab_size": len(tokenizer), "max_position_embeddings": 77}
        vision = {**small, **heads, "image_size": 32, "patch_size": 16}
        config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
        crop = {"height": 32, "width": 32}
        processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=crop)
        scorer = CLIPModel(config)
        with torch.no_grad():  # random features have nearly the same direction until their mean is subtracted
            pixels = processor([scene.image() for scene in self.scenes[:POOL]], return_tensors="pt")["pixel_values"]
            tower = scorer.vision_model
            tower.post_layernorm.bias -= tower(pixel_values=pixels).pooler_output.mean(0)
        scorer.save_pretrained(clip)
        processor.save_pretrained(clip)
        tokenizer.save_pretrained(clip)
        gpt2 = self.folder / "gpt2"
        size = {"n_positions": 128, "n_embd": 16, "n_layer": 1, "n_head": 2}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **size, **ends))
        model.save_pretrained(gpt2)
        tokenizer.save_pretrained(gpt2)
        for name in ("coco_weights.pt", "conceptual_weights.pt"):
            self.write_clipcap(self.folder / name, model)
        resnet = self.folder / "microsoft" / "resnet-152"
        layers = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"}
        ResNetModel(ResNetConfig(**layers)).save_pretrained(resnet)
        ConvNextImageProcessorPil(size={"shortest_edge": 32}).save_pretrained(resnet)
        blip = self.folder / "Salesforce" / "blip-image-captioning-base"
        blip.mkdir(parents=True)
        words = ["picture", *self.words, *(f"##{word}" for word in self.words)]  # other forms, for first-token shifting
        save_blip(blip, words, positions=96)
        for copy in ("Salesforce/blip-image-captioning-large", "blip-scratch"):
            shutil.copytree(blip, self.folder / copy)
        self.write_pretrained_blip(words)
        self.write_own(words)
        for name, write in {
            "google/paligemma-3b-mix-224": families.paligemma,
            "google/paligemma-3b-mix-448": families.paligemma,
            "Salesforce/instructblip-vicuna-13b": families.instructblip,
            "llava-hf/llava-v1.6-34b-hf": families.llava_next,
            "llava-hf/llava-1.5-7b-hf": families.llava,
        }.items():
            write(self.folder / name)
        llama = self.folder / "huggyllama" / "llama-13b"
        words_too = word_tokenizer([*self.texts, *(f"say {word} it is" for word in self.words)])
        ends = {"bos_token_id": words_too.bos_token_id, "eos_token_id": words_too.eos_token_id}
        llama_config = LlamaConfig(vocab_size=len(words_too), max_position_embeddings=640, **small, **heads, **ends)
        LlamaForCausalLM(llama_config).save_pretrained(llama)
        words_too.save_pretrained(llama)

    def write_pretrained_blip(self, words: list[str]) -> None:
        """BLIP's pre-trained checkpoint as its authors distribute it, and BERT's tokenizer, to which it adds two."""
        bert = self.folder / "bert-base-uncased"
        bert.mkdir()
        (bert / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
        tokenizer = BertTokenizer(str(bert / "vocab.txt"))
        tokenizer.save_pretrained(bert)
        write_blip(self.folder / "model_base_capfilt_large.pth", words=len(tokenizer) + 2)

    def write_own(self, words: list[str]) -> None:
        """The captioner of docs/howto/own-captioner.md, as a user's own file, and the tokenizer that it takes."""
        code = re.search(r"```python\n(\"\"\"my_captioner\.py.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
        assert code is not None
        (self.folder / "my_captioner.py").write_text(code[1], encoding="utf-8")
        vocabulary = self.folder / "words.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
        BertTokenizer(str(vocabulary)).save_pretrained(self.folder / "words")

    def write_clipcap(self, path: Path, gpt2: Any) -> None:
        """ClipCap's published layout: ``gpt.*`` with GPT-2's old buffers, and ``clip_project.model.{0,2}.*``."""
        width, prefix = 16, 10
        state = {f"gpt.{key}": tensor.clone() for key, tensor in gpt2.state_dict().items()}
        state["gpt.transformer.h.0.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
        state["gpt.transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
        for place, (rows, columns) in {0: (width * prefix // 2, 8), 2: (width * prefix, width * prefix // 2)}.items():
            state[f"clip_project.model.{place}.weight"] = torch.randn(rows, columns) * 0.1
            state[f"clip_project.model.{place}.bias"] = torch.zeros(rows)
        torch.save(state, path)


def write_video(path: Path, frames: Iterator[Image.Image] | list[Image.Image]) -> None:
    """An MPEG-4 of these frames at ten a second."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            for packet in stream.encode(av.VideoFrame.from_image(frame.convert("RGB").resize((32, 32)))):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
