"""Tasks of the paved road, by their name in a configuration: language and classify."""
