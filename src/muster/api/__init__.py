"""The shapes of every answer of the HTTP API, as typed dictionaries that server, client and command line share."""
