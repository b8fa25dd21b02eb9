"""The server's side of the web page: its files, the sessions of browsers, and what a session may do."""
