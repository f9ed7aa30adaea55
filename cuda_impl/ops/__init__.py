"""Torch-facing functions of the kernels: tensors in, tensors out, on the device of the inputs."""
