"""File formats of other tools, as far as Muster reads and writes them. Standard library only: ranks use it too."""
