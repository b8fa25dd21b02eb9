"""The command `muster`: one file for each family of verbs, imported only when one of its verbs is called."""
