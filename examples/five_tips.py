"""Five tips for training on several GPUs, in today's code."""

import sys

import keras
import numpy as np

from trainer_hooks import NaNGuard, devices, fixed_batches, multi_gpu_model, prefetch_to_device

samples, features, batch_size = 1_000, 20, 64
random = np.random.default_rng(0)
x = random.normal(size=(samples, features)).astype("float32")
y = random.integers(0, 2, samples)

# Tip 5: count the GPUs without starting anything on them.
print(f"{devices.gpu_count()} NVIDIA GPUs can be used")

# Tip 1: train on all GPUs that TensorFlow sees, by one call.
model = keras.Sequential(
    [
        keras.Input((features,)),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
parallel_model = multi_gpu_model(model)
parallel_model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
gpus = len(parallel_model.devices)
print(f"Each batch is split over {', '.join(parallel_model.devices)}")

# Tip 2: batches of one size, with a part for every GPU, and a guard against NaN.
data = fixed_batches((x, y), batch_size - batch_size % gpus, multiple_of=gpus, tail="repeat")

# Tip 3: make the next batches during a step.
parallel_model.fit(prefetch_to_device(data), epochs=2, verbose=2, callbacks=[NaNGuard()])

# Tip 4: save the single-device model, which has the trained weights.
path = sys.argv[1] if len(sys.argv) > 1 else "trained.keras"
parallel_model.save(path)
loaded = keras.models.load_model(path)
same = np.array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
print(f"Saved as {path}, a model for one device; it predicts the same: {same}")
