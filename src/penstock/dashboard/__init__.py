"""The page: see what a flow does, and why Penstock decided what it did, while it runs and after.

The data's way: `sampling` looks at a run about once a second and makes a sample, plain JSON, the same for all engines;
`recorder` keeps the samples, thinned out, and the decisions in a `history`, and in another one on disk; there is also
what can be asked of a run, live or finished. `app` answers browsers, behind `guard`; `server` listens, and sleeps until
somebody asks.
Nothing here is loaded by `import penstock`.
"""
