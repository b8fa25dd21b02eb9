"""What the record says about how things went: pure functions over what was observed."""
