"""Self-retrieval as a reward in a training loop of your own: captions and pictures in, a number per caption out."""

import torch

from tellapart.captioners import load_captioner
from tellapart.models.decoding import Decoding
from tellapart.objectives.caption_log_probs import token_log_probs
from tellapart.rewards import self_retrieval
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer

torch.manual_seed(0)
scorer = load_scorer("scenes")  # or openai/clip-vit-base-patch32
captioner = load_captioner("scenes", precision="fp32")  # or any model of your own that writes captions
images = [scene.image() for scene in Scenes(16)]
visual = captioner.encode(captioner.pixels(images)).detach()
optimizer = torch.optim.AdamW(captioner.parts()["language_model"].parameters(), lr=1e-4)
for _step in range(3):
    captions = captioner.generate(visual, Decoding(kind="sample", samples=4, max_tokens=16))
    reward = self_retrieval(captions.texts, images, scorer).view(16, 4)
    advantage = (reward - reward.mean(1, keepdim=True)).flatten()
    tokens, valid = captions.tokens_RT, captions.valid_RT
    log_prob = token_log_probs(captioner.logits(visual, tokens, valid), tokens)
    loss = -(advantage * (log_prob * valid).sum(1) / valid.sum(1)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"reward {reward.mean():.4f}")
