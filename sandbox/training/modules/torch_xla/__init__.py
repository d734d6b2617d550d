"""The names that a job's corrections replace: the sandbox's training needs no device."""
