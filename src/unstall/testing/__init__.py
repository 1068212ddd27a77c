"""Public: drawn timelines and the contract that every cause is held to. For tests; no stage imports it."""
