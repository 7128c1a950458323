"""Which trials run, in which order and for how long, and which do not fit.

plan.py                 one decision per trial: run, stored, predicted_oom or unsupported, with the reason
memory_predictions.py   predicted peaks, from the cache or from a process that may import torch
prediction_process.py   the process that predicts, and its answers as they come
memory_budget.py        what a device has for a trial
largest_fit.py          the largest batch or context that fits
time_model.py           how long an iteration should take, from FLOPs and bytes
time_estimate.py        how long a trial took before, or should take
forecast.py             what the whole plan takes, in seconds and dollars
run_order.py            the shortest trial of every kind first, then long before short, compiled ones last
"""
