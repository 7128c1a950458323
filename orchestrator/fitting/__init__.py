"""Answers whether a model fits, on which GPUs, by which method, how fast and for how much. Needs no GPU and no Ray.

fit_request.py      what `fits` is asked, read and checked
fit.py              one answer per GPU, number of GPUs and method
predicted_fits.py   predicts the answers, and ranks them
"""
