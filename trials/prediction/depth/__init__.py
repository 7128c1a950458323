"""Deep models from shallow ones: layers of one kind allocate and compute alike.

shallow_models.py        which shallow models stand for a deep one
layer_extrapolation.py   the trace of a deep model, from those of two shallow ones
operator_growth.py       operators of larger models, from those of smaller ones
"""
