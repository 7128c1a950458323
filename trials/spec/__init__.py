"""What is asked for: the configuration of a trial, its identifiers, the model sizes."""
