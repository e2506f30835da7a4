"""The stock exchange: `orders` makes the input, `transactor` trades, `flow` joins; every other file is one query."""
