"""The stock exchange: `orders` makes its input, `transactor` trades, every other file is one query, `flow` joins them."""
