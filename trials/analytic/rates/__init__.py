"""What the operators of a step cost on a GPU, and the time of the step that they make up."""
