"""Memory and operators of a step without the device: one run on tensors without storage.

    predict.py               the program that planning asks: requests in, answers out, as JSON
    process_pool.py          the same question about many configurations, on all cores
    peak_memory.py           the prediction for one trial, and whether it fits
    activation_budget.py     the share of activations that a compiled block may save to meet memory_budget
    step_family.py           a step at any batch, from at most four shallow runs; the largest that fits
    flop_count.py            FLOPs of a step with the user's own model, without computing anything
    own_code_jobs.py         predictions that import the user's code, each in a process with a time limit
    shared_runs.py           which trials one run serves
    step_operators.py        the operators of any trial at its full depth
    float8_operators.py      those of a step in float8, from those in bfloat16
    depth/                   large steps from small ones: more layers, of each kind by itself; another batch or shape
    many_steps/              steps whose batches differ, one after the other through one allocator
    without_device/          tensors without storage, ranks without processes, a simulated allocator
    compiled/                memory of compiled graphs: which buffers live when

Planning starts `predict.py` as a process, because the driver does not import torch. Predictions are cached on disk
under a key that covers this code and the version of torch.
"""
