"""The command `muster`: one file a verb family, each imported when one of its verbs is called."""
