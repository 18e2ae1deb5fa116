"""Two GPUs of different speed, both busy all the time: each batch is split 3 to 2."""

import gpu_maxing_model
import ratio_training_utils
from keras import losses, optimizers

from trainer_hooks import PhaseTagger

single_model = gpu_maxing_model.get_model()

model = ratio_training_utils.multi_gpu_model(single_model, gpus=[0, 1], ratios=[3, 2])

model.compile(optimizer=optimizers.Adam(), loss=losses.categorical_crossentropy)

batch_size = 1000
x, y = gpu_maxing_model.get_MNIST_train_data(samples=2_000)
model.fit(x, y, batch_size=batch_size, epochs=2, verbose=2, callbacks=[PhaseTagger()])
