"""The algorithms of the papers that Tidegate builds on, written to be read and compared, not to be fast.

Matching engines: `tree` (Aguilera et al.), `counting` (predicate counters) and `improved_tree` (SDaaS, section 4.2,
with `predicate_lists`, `partition` and `workers`). They implement `tidegate.matching.index.Index`, pass the same
contract tests as the default engine, and are reached only as `Matcher(engine="tree")`, `"counting"` or
`"improved-tree"`.

Discovery: `fuzzy_discovery` (Zhu, figure 1), used by tests and benchmarks.

No other package imports this one. `tidegate.matching.engines` loads an engine by name when a matcher asks for it.
"""
