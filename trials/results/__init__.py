"""What is stored: measurements and records, the environment, a status word per trial."""
