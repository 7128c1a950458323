"""GPUs: which there are, their state, their telemetry.

accelerator.py      what the device of a trial can do, asked of PyTorch
nvml.py             asks NVIDIA's driver, without torch
nvml_sampler.py     a process that samples one GPU through NVML
telemetry.py        clocks, power, temperature and energy during a trial, from those samples
cuda_keepalive.py   a process that keeps the CUDA driver initialised between trials
"""
