"""The built-in tasks by their names in a configuration: language and classify."""
