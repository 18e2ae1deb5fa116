"""A training script as strangers write it, after PyTorch's ImageNet example: it has no tags.

    python examples/imagenet_untagged.py --board /tmp/board.jsonl
    gpumon why PID --source follow:/tmp/board.jsonl                # in another terminal

It makes its images at the start. Its GPU is simulated: a step takes ``STEP_S``, and ``--board``
names the file of the busy spans. The transform blurs whole images and only then crops them, so
each batch is late. ``--crop-first`` and ``--workers`` are two ways to change that.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from torch.nn.functional import conv2d
from torch.utils.data import DataLoader, Dataset

HEIGHT, WIDTH, CROP = 400, 500, 128
CLASSES, BATCH, STEP_S = 10, 32, 0.3
KERNEL = torch.ones(3, 1, 9, 9) / 81


class Board:
    """A simulated GPU: busy for a while for each step, and idle between two."""

    def __init__(self, path):
        self.spans = path.open("a", buffering=1)

    def compute(self, step):
        start_ns = time.monotonic_ns()
        loss = step()
        time.sleep(max(0.0, STEP_S - (time.monotonic_ns() - start_ns) / 1e9))
        span = {"gpu": 0, "start_ns": start_ns, "end_ns": time.monotonic_ns(), "pid": os.getpid()}
        self.spans.write(json.dumps(span) + "\n")
        return loss


class ImageFiles(Dataset):
    """Images in files, each with a label."""

    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        pixels = torch.frombuffer(bytearray(self.paths[number].read_bytes()), dtype=torch.uint8)
        return self.transform(pixels.reshape(3, HEIGHT, WIDTH)), number % CLASSES


def blur_then_crop(image):
    """Blur 200,000 pixels, and keep 16,384 of them."""
    return random_crop(blur(image))


def crop_then_blur(image):
    """Blur only the pixels that are kept."""
    return blur(random_crop(image))


def blur(image):
    """Each pixel becomes the mean of 81."""
    return conv2d(image[None] / 255, KERNEL, padding=4, groups=3)[0]


def random_crop(image):
    """A square part of it."""
    top = torch.randint(HEIGHT - CROP, ()).item()
    left = torch.randint(WIDTH - CROP, ()).item()
    return image[:, top : top + CROP, left : left + CROP]


def make_images(folder, count):
    """Write random images, and return their paths."""
    paths = [folder / f"{number}.rgb" for number in range(count)]
    for path in paths:
        image = torch.randint(256, (3, HEIGHT, WIDTH), dtype=torch.uint8)
        path.write_bytes(image.numpy().tobytes())
    return paths


def train(loader, model, optimizer, board):
    """Train for one epoch, and return the loss of its last batch."""
    for images, labels in loader:

        def step(images=images, labels=labels):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        loss = board.compute(step)
    return loss


def main():
    """Train as the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--board", type=Path, required=True, help="file for the busy spans")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    parser.add_argument("--crop-first", action="store_true", help="crop before the blur")
    args = parser.parse_args()
    torch.set_num_threads(1)
    board = Board(args.board)
    model = torch.nn.Sequential(
        torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (CROP // 8) ** 2, CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        transform = crop_then_blur if args.crop_first else blur_then_crop
        images = ImageFiles(make_images(Path(folder), args.images), transform)
        loader = DataLoader(
            images, batch_size=BATCH, shuffle=True, num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )  # fmt: skip
        for epoch in range(args.epochs):
            began_s = time.monotonic()
            loss = train(loader, model, optimizer, board)
            rate = args.images / (time.monotonic() - began_s)
            print(f"epoch {epoch}: {rate:.0f} images/s, loss {loss:.2f}", flush=True)


if __name__ == "__main__":
    main()
