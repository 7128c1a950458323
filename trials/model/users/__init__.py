"""The user's model, attention and step, and models of Hugging Face.

users_attention.py   the user's own implementation
users_step.py        the user's own training step
users_model.py       the user's own model, and its repeated layers
hugging_face.py      models of Hugging Face's configurations
layer_kinds.py       the kinds of a model's layers, and models of some of them alone
users_forward.py     one forward pass of it: how it is called, logits and loss
"""
