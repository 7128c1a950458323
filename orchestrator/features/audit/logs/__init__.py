"""The logs of trainers: `trainers.toml` has the lines that each writes. To add a trainer, add a table there."""
