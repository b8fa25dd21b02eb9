"""The pages of `docs/` that are made from the code, one module a page; `docs/generate.py` writes them."""
