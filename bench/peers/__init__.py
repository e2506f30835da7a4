"""Write W1 as the alternatives' own documentation would: one module each."""
