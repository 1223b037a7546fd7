"""The corpus behind the local tools: linked pages with a search index, generated from a seed or brought by the user.

`generate` (the world: subjects, facts), `html` (its pages), `questions` (what is asked about it), `loaders` (users' own
pages), `index` (SQLite FTS5), `build` (a corpus's folder, made once and opened by many). Parent and tool server only:
nothing here is imported inside a framework's process.
"""
