"""The indexer in CUDA C++: kernels, the headers that run them on a CPU, their build, and a plain torch path."""
