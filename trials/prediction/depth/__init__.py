"""Large steps from small ones: layers of one kind allocate and compute alike, and each size grows with the batch.

shallow_models.py        which shallow models stand for a deep one
layer_extrapolation.py   the trace of a deep model, from those of two shallow ones
operator_growth.py       operators of larger models and batches, from those of smaller ones
batch_growth.py          allocations at any batch, from those of two
shape_growth.py          allocations at any number of rows and any width, from those of four shapes
"""
