"""What work costs: prices, charges, budgets, reports and advice. Pure functions of what they are given."""
