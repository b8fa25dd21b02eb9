"""HTML files that need nothing else: one document with its style and its charts, without scripts or links."""
