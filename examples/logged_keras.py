"""Keras, logged to W&B, MLflow and TensorBoard: how long each epoch waited for input.

    WANDB_MODE=offline python examples/logged_keras.py --to tensorboard wandb mlflow

``PhaseTagger`` adds ``input_wait_ratio`` and, beside a daemon, ``gpu_busy_ratio`` and
``starved_ratio`` to the logs of each epoch, which the callback of each logger then stores.
"""

import argparse
import time

import keras
import numpy as np

from trainer_hooks import PhaseTagger

BATCH = 32


def slow_batches(count):
    """Batches from a store that takes 20 ms for each."""
    random = np.random.default_rng(0)
    for _ in range(count):
        time.sleep(0.02)
        rows = random.normal(size=(BATCH, 8))
        yield rows, rows.sum(axis=1, keepdims=True)


def to_tensorboard():
    """Keras' own."""
    return keras.callbacks.TensorBoard("tensorboard")


def to_wandb():
    """W&B's own; the metrics are named epoch/input_wait_ratio."""
    import wandb
    from wandb.integration.keras import WandbMetricsLogger

    wandb.init(project="gpumon-example")
    return WandbMetricsLogger()


def to_mlflow():
    """MLflow's own, for an active run."""
    import mlflow
    from mlflow.keras import MlflowCallback

    mlflow.start_run()
    return MlflowCallback()


LOGGERS = {"tensorboard": to_tensorboard, "wandb": to_wandb, "mlflow": to_mlflow}


def main():
    """Train for three epochs."""
    parser = argparse.ArgumentParser(description="logs a Keras run")
    parser.add_argument("--to", nargs="+", choices=LOGGERS, default=["tensorboard"])
    names = parser.parse_args().to

    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    epochs, steps = 3, 10
    history = model.fit(
        slow_batches(epochs * steps),
        epochs=epochs,
        steps_per_epoch=steps,
        callbacks=[*(LOGGERS[name]() for name in names), PhaseTagger()],
        verbose=2,
    )
    print("input_wait_ratio:", *history.history["input_wait_ratio"])


if __name__ == "__main__":
    main()
