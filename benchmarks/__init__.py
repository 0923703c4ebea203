"""The package beside others that do the same: how fast, how much memory, and what each technique gave."""
