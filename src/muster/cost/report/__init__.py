"""Reports of the cost ledger: pure functions over sums of its entries, each figure with its definition."""
