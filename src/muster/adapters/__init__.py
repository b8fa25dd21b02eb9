"""What programs that use other frameworks import: one file a framework, which stands on `muster.runtime` alone."""
