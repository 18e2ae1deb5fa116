"""The folder that `gpumon run` puts on PYTHONPATH: only ``sitecustomize`` may be found in it."""
