r"""Accelerate on two unequal GPUs: two additional lines, marked "added".

    torchrun --standalone --nproc-per-node 2 examples/unequal_accelerate.py

Without GPUs, two processes on the CPU do the same with ACCELERATE_USE_CPU=true.
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.accelerate import split_by_ratios  # added


def main():
    """Train for five epochs and return the model."""
    torch.manual_seed(1)
    rows = torch.randn(480, 16)
    data = TensorDataset(rows, rows[:, :4].argmax(dim=1))
    layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=50, shuffle=True)  # 60 samples and 40

    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loader = split_by_ratios(accelerator, model, loader, ratios=[3, 2])  # added
    for epoch in range(5):
        for rows, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(rows), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: the last loss of rank 0 is {loss.item():.3f}")
    return accelerator.unwrap_model(model)


if __name__ == "__main__":
    main()
