"""What each verb of the command does, and the text that it prints."""
