"""AdamW and Muon in one."""

import math

import torch


class Optimizer:
    """AdamW for embeddings, head and norms; for the matrices of the layers momentum whose singular
    values are all brought near 1 (Muon, Jordan et al. 2024), which needs fewer tokens."""

    def __init__(self, model, rate):
        self.matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "layers" in n]
        rest = [p for n, p in model.named_parameters() if not (p.dim() == 2 and "layers" in n)]
        self.adam = torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.momentum = [torch.zeros_like(p) for p in self.matrices]

    @staticmethod
    def orthogonal(m):
        """Five Newton-Schulz steps of the quintic with Jordan's coefficients; they need no more
        precision than bf16."""
        x = (m / (m.norm() + 1e-7)).bfloat16()
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return (x.T if tall else x).float()

    @torch.no_grad()
    def step(self, rate):
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        for p, m in zip(self.matrices, self.momentum):
            m.lerp_(p.grad, 0.05)
            update = self.orthogonal(p.grad.lerp(m, 0.95))
            p.mul_(1 - rate * 0.05)
            # The scale gives the update the root mean square of an Adam step.
            p.add_(update, alpha=-rate * 0.2 * math.sqrt(max(p.shape)))

    def state(self):
        return {"adam": self.adam.state_dict(), "momentum": self.momentum}

    def load(self, state):
        self.adam.load_state_dict(state["adam"])
        self.momentum = [m.to(p.device) for m, p in zip(state["momentum"], self.matrices)]
