"""What is claimed: its fields, the models that it names, and how its FLOPs are counted."""
