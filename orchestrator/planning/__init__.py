"""Decides which trials run, in which order, and estimates their memory, time and cost.

In this room a *prediction* is of memory and an *estimate* is of time.

    plan.py                 one decision per trial: run, stored, predicted_oom or unsupported, with the reason
    memory_predictions.py   predicted peak memory, from the cache or from the prediction process
    prediction_process.py   the process that predicts memory, and its answers as they arrive
    memory_budget.py        how much memory a device has for a trial
    largest_fit.py          the largest batch or context that fits
    time_estimate.py        how long a trial takes, from earlier results or its step; its iterations, its graph
    step_estimate.py        the predicted step of each trial from its operators, and how sure it is
    own_attention.py        the user's own attention in a step, by the store's time of it alone
    plan_estimate.py        what a whole plan will take, in seconds and dollars
    run_order.py            the shortest trial of each kind first, then long before short, compiled ones last
"""
