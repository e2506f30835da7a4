"""Inside a processing element: chunks of rows through operators, in order."""
