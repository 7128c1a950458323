"""How to use a winner: the command that measures it again, and plain PyTorch that sets it up.

recipe.py          both, of a configuration
model_recipes.py   the PyTorch that changes a model
step_recipes.py    the PyTorch of a loss and an optimizer
"""
