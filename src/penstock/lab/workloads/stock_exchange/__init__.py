"""The stock exchange: `orders` makes the input, `transactor` trades, `statistics` and `events` ask, `flow` joins."""
