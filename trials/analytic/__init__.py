"""Arithmetic that needs no device: formulas, datasheets, prices.

flop_conventions.py    the two ways to count attention's FLOPs: as the model defines it, and as kernels are rated
packed_scores.py       the scores that the mask of packed documents leaves
formulas.py            parameters, FLOPs and bytes of the transformer in closed form
datasheets.py          peak rates and memory of known devices
prices.py              dollars per hour of a device, from the option --price
memory_prediction.py   the result of a memory prediction, and which trials share one
prediction_question.py  what is asked about a step, and what is answered, as records
trial_durations.py    what trials take beside their modelled iterations, fitted to the reference sets
memory_bounds.py       bounds on the memory of many trials from predictions of a few
"""
