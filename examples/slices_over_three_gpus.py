"""A Sequential network whose batches are split into three equal slices, one per GPU."""

import keras
import numpy as np

from trainer_hooks import slice_batch, to_multi_gpu

random = np.random.default_rng(0)
x = random.normal(size=(3_000, 32)).astype("float32")
y = x.sum(axis=1, keepdims=True)

model = keras.Sequential(
    [keras.Input((32,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(1)]
)
model = to_multi_gpu(model, n_gpus=3)
model.compile(optimizer="adam", loss="mse")
model.fit(x, y, batch_size=300, epochs=4, verbose=2)

for part in range(3):
    rows = len(slice_batch(x[:100], 3, part))
    print(f"{model.devices[part]} gets {rows} of a batch of 100")
