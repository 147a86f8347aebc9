"""SMILE in a training loop of your own: any causal model of transformers, with the labels that its collators make."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tellapart.objectives import shift_labels, smile_loss

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=2))  # or yours
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(4, 100, (8, 12))
labels = tokens.clone()
labels[:, :3] = -100  # no loss on the prompt, nor on padding: as transformers has it, not shifted
for _step in range(20):
    target, valid = shift_labels(labels)
    loss = smile_loss(model(input_ids=tokens).logits[:, :-1], target, valid, mle=0.01)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.4f}")
