"""Controllers on a live flow: one file for each, with what it sees and how what it decides is done."""
