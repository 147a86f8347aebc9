"""For each claim, the stand-ins for the paper's models and data, and how the experiment differs from the paper's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StandIn:
    """How a claim's experiment differs from the paper's.

    here: the stand-ins for the paper's models, data and measures.
    differs: other differences from the paper.
    """

    here: str
    differs: str


_SMILE = "the captioner of `scenes` for BLIP-base, its plain pictures for COCO, the scorer of `scenes` for CLIP"
_NDLB = "the captioner of `scenes` for ClipCap, its scorer for CLIP, its plain references for COCO's"
_DISCRI = "the captioner of `scenes` for ClipCap, its scorer for CLIP, plain pictures for COCO"
_SLE = "the captioner of `scenes` for the CNN-LSTM of the paper, the domain `cocolike` for COCO"
_STEPS = "a fixed number of steps and the last weights (the paper: epochs, the best checkpoint)"
_LORA = "R@1 among the ten nearest for TrueMatch; several samples against each other with a KL, for one against a mean"

STAND_INS = {
    "smile-length": StandIn(_SMILE, f"stopped at twice the length; precision is of claims, by the truth; {_STEPS}"),
    "smile-init": StandIn(
        f"{_SMILE}; a few steps from random weights for a decoder that is trained from scratch",
        _STEPS,
    ),
    "smile-first-token": StandIn(_SMILE, f"the shift is that of one pair of tokens; {_STEPS}"),
    "smile-mix": StandIn(_SMILE, f"λ 0.02 for 0.01, and R@1 is asked of 0.1, which is best here; {_STEPS}"),
    "smile-subsets": StandIn(_SMILE, "lengths at the end, not their course over epochs"),
    "smile-corpus": StandIn(
        "article and noun of references without details for Simplest-COCO, references with few for Simpler-COCO",
        "no parser is needed for these; Simpler-COCO has subject and verb (`tellapart data simplify` parses both)",
    ),
    "smile-tokens": StandIn(_SMILE, "one pair of sentences for each picture; a mean of losses for the picture of one"),
    "smile-paraphrase": StandIn(_SMILE, _STEPS),
    "smile-video": StandIn(
        "clips of four frames in which a scene changes, for MSR-VTT; two frames are seen, for eight by BLIP4video",
        "retrieval by the scorer's cosine, not by EMScore's F",
    ),
    "vcb-captions": StandIn(
        "a scripted describer that gives 20% wrong values, for the LLM and the MLLM", "no model is trained at all"
    ),
    "sr-init": StandIn(f"{_NDLB}; richer references for BlendCap and HolisticCap", _LORA),
    "sr-tradeoff": StandIn(
        _NDLB, "two lengths of training without KL, for 20 and 100 epochs; hallucination by the truth"
    ),
    "sr-modules": StandIn(_NDLB, f"fewer steps for “until R@1 is equal”; {_LORA}"),
    "bagcurri": StandIn(
        f"{_NDLB}; rich references for HolisticCap",
        "the softmax runs over each bag, not over the whole batch; a shorter schedule of sizes",
    ),
    "sr-diversity": StandIn(_NDLB, "words that occur five times in the captions of 2,000 pictures, not of 5,000"),
    "sr-cider": StandIn(
        f"{_NDLB}; rich references for HolisticCap",
        "samples at a higher temperature against each other, not against greedy; other λ; no bags",
    ),
    "cider-long": StandIn(f"{_NDLB}; richer references for BlendCap and HolisticCap", "correct is by the truth"),
    "sr-transfer": StandIn("frames of clips that stand still, for ImageCoDe", "four frames of a clip, not ten"),
    "discri-retrieval": StandIn(
        f"{_DISCRI}; the domain `alt` for Conceptual Captions, shapes never trained on for Flickr and nocaps", _STEPS
    ),
    "discri-transfer": StandIn(
        "the captioner of `scenes` for ClipCap, its scorer for CLIP, `cocolike` for COCO, `alt` for alt-text",
        _STEPS,
    ),
    "discri-baseline": StandIn(
        f"{_DISCRI}; a start of rich references, whose P@1 is near the paper's",
        "plain pictures for Flickr30k's; samples at a low temperature for the paper's beam; with a KL to the start",
    ),
    "discri-reward": StandIn(_DISCRI, "plain pictures for Flickr30k's"),
    "discri-hard": StandIn(_DISCRI, "smaller batches; tested among random candidates, as in the paper"),
    "discri-words": StandIn(_DISCRI, "shares of all words by group, not the ten most associated adjectives"),
    "discri-listener": StandIn(
        "a listener that knows the truth of each picture, for people", "families of look-alikes"
    ),
    "sll-precision": StandIn(_SLE, "a few dozen steps; CIDEr of the greedy caption, and of five samples"),
    "sle-both": StandIn(
        _SLE,
        "greedy decoding for beams of five; α is the paper's; the entropy's weight is chosen as in the paper, and is "
        "0.001 for its 0.01",
    ),
    "sle-video": StandIn("clips of four frames for TGIF; two frames are seen", "CIDEr alone of the paper's three"),
    "smile-starts": StandIn(
        "a captioner of the domain `alt`, on plain pictures, for BLIP pre-trained on web text", _STEPS
    ),
    "sr-equal": StandIn(_NDLB, "both stop at one R@1 on the validation pictures, not SR-L at that of SR-V"),
    "discri-choice": StandIn(
        "validation pictures of shapes never trained on, for Flickr30k's", "trained on plain ones"
    ),
    "sle-alpha": StandIn(_SLE, "greedy decoding; on test pictures"),
    "sle-entropy": StandIn(_SLE, "greedy decoding; on test pictures"),
}
